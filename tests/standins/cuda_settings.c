/* The script keys of the stand-in libcuda.so.1; the defaults stand below.
 *
 *   driver_version N                as cuDriverGetVersion counts: 12080 is CUDA 12.8
 *   devices N                       0 makes cuInit say so
 *   device.I.name|uuid|pci_bus_id TEXT
 *   device.I.sm_count|cc_major|cc_minor|clock_khz|memory_clock_khz|memory_bus_bits|l2_bytes N
 *   device.I.mps 0|1                contexts on it are shared through the multi-process service
 *   device.I.mig PROFILE            it is an instance, and its name ends in " MIG PROFILE"
 *   device.I.mig_uuid TEXT          of the instance; device.I.uuid is that of the whole GPU
 *   device.I.total_mem|free_mem BYTES
 *   pinned_limit BYTES              what cuMemHostAlloc gives in all
 *
 * Real time, spun away inside the call:
 *   launch_ns, first_launch_ns, sync_ns (cuStreamSynchronize), init_ns, module_load_ns N
 *   copy_ns (each cuMemcpy...), event_ns (cuEventRecord), graph_launch_ns (cuGraphLaunch),
 *   graph_node_ns (each node of the graph, in the same call) N
 *
 * Virtual time, read through events:
 *   kernel_ns N                     each gpud_empty and gpud_count
 *   flops_per_second R              gpud_nbody: 20 n^2 flops, gpud_matmul, gpud_matmul_16: 2 n^3
 *   tensor_flops_per_second R       gpud_matmul_tensor: 2 n^3
 *   bytes_per_second R              gpud_triad: 48 n4 bytes; cuMemsetD32: 4 bytes a word
 *   h2d_bytes_per_second, d2h_bytes_per_second, or host_copy_bytes_per_second for both R
 *   pageable_h2d_bytes_per_second, pageable_d2h_bytes_per_second R
 *                                   to and from what cuMemHostAlloc did not give; default: the same
 *   d2d_bytes_per_second R          copies on the device: twice their size; default: bytes_per_second
 *
 * Wrong results, for tests of verification:
 *   corrupt KERNEL [ELEMENT]        one element, by default the first of whatever is read back;
 *                                   gpud_count counts each launch twice
 *   corrupt copy                    the first byte of every copy to the host
 *   corrupt device_copy             the first byte of every copy on the device
 */
#include "libcuda.h"

#include <stdio.h>
#include <string.h>

const char *const library_name = "libcuda.so.1";

#define GIB (UINT64_C(1) << 30)

struct settings settings = {
    .driver_version = 12080,
    .devices = 1,
    .pinned_limit = GIB,
    .kernel_ns = 1500,
    .flops_per_second = 1e13,
    .tensor_flops_per_second = 1e14,
    .bytes_per_second = 5e11,
    .h2d_bytes_per_second = 2.5e10,
    .d2h_bytes_per_second = 2.5e10,
};

__attribute__((constructor)) static void device_defaults(void)
{
    for (int i = 0; i < MAX_DEVICES; i++) {
        struct device *device = &settings.device[i];
        *device = (struct device){
            .uuid = {0x6d, 0x0c, 0x5f, 0x2e, 0x8a, 0x41, 0x4b, 0x7d, 0x9e, 0x13, 0, 0, 0, 0, 0, i},
            .mig_uuid = {0x3b, 0x7e, 0x91, 0xc4, 0x0d, 0x52, 0x56, 0xa8, 0xb1, 0x6f, 0, 0, 0, 0, 0, i},
            .sm_count = 4,
            .cc_major = 8,
            .cc_minor = 9,
            .clock_khz = 2475000,
            .memory_clock_khz = 10501000,
            .memory_bus_bits = 192,
            .l2_bytes = 262144,
            .total_mem = 8 * GIB,
            .free_mem = 7 * GIB,
        };
        snprintf(device->name, sizeof device->name, "NVIDIA GeForce RTX 4070 (stand-in)");
        snprintf(device->pci_bus_id, sizeof device->pci_bus_id, "0000:%02x:00.0", i + 1);
    }
}

static void parse_uuid(const char *key, const char *text, unsigned char uuid[16])
{
    int digits = 0;
    for (const char *at = text; *at; at++) {
        unsigned value;
        if (*at == '-')
            continue;
        if (digits == 32 || sscanf((char[]){*at, 0}, "%1x", &value) != 1)
            script_die("%s: not 32 hexadecimal digits: '%s'", key, text);
        unsigned char *byte = &uuid[digits / 2];
        *byte = (unsigned char)(digits++ % 2 ? *byte | value : value << 4);
    }
    if (digits != 32)
        script_die("%s: not 32 hexadecimal digits: '%s'", key, text);
}

static bool device_line(const char *key, const char *field, struct device *device, char *value)
{
    const struct { const char *field; int *target; } integers[] = {
        {"sm_count", &device->sm_count},
        {"cc_major", &device->cc_major},
        {"cc_minor", &device->cc_minor},
        {"clock_khz", &device->clock_khz},
        {"memory_clock_khz", &device->memory_clock_khz},
        {"memory_bus_bits", &device->memory_bus_bits},
        {"l2_bytes", &device->l2_bytes},
        {"mps", &device->mps},
    };
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (!strcmp(field, integers[i].field)) {
            *integers[i].target = (int)script_integer(key, value);
            return true;
        }
    if (!strcmp(field, "name"))
        script_text(key, value, device->name, sizeof device->name);
    else if (!strcmp(field, "uuid"))
        parse_uuid(key, value, device->uuid);
    else if (!strcmp(field, "mig_uuid"))
        parse_uuid(key, value, device->mig_uuid);
    else if (!strcmp(field, "mig"))
        script_text(key, value, device->mig, sizeof device->mig);
    else if (!strcmp(field, "pci_bus_id"))
        script_text(key, value, device->pci_bus_id, sizeof device->pci_bus_id);
    else if (!strcmp(field, "total_mem"))
        device->total_mem = (uint64_t)script_integer(key, value);
    else if (!strcmp(field, "free_mem"))
        device->free_mem = (uint64_t)script_integer(key, value);
    else
        return false;
    return true;
}

static void corrupt_line(char *value)
{
    char *rest, *name = strtok_r(value, " \t", &rest), *element = strtok_r(NULL, " \t", &rest);
    struct kernel *kernel = kernel_named(name);
    bool copy = !strcmp(name, "copy"), device_copy = !strcmp(name, "device_copy");
    if (strtok_r(NULL, " \t", &rest) || (!kernel && ((!copy && !device_copy) || element)))
        script_die("corrupt: expected KERNEL [ELEMENT], copy or device_copy, not '%s'", name);
    settings.corrupt_copy |= copy;
    settings.corrupt_device_copy |= device_copy;
    if (!kernel)
        return;
    kernel->corrupt = true;
    if (element)
        kernel->corrupt_element = script_integer("corrupt", element);
}

bool library_line(const char *key, char *value)
{
    static const struct { const char *key; int64_t *target; } integers[] = {
        {"launch_ns", &settings.launch_ns},
        {"first_launch_ns", &settings.first_launch_ns},
        {"sync_ns", &settings.sync_ns},
        {"init_ns", &settings.init_ns},
        {"module_load_ns", &settings.module_load_ns},
        {"graph_launch_ns", &settings.graph_launch_ns},
        {"graph_node_ns", &settings.graph_node_ns},
        {"copy_ns", &settings.copy_ns},
        {"event_ns", &settings.event_ns},
        {"pinned_limit", &settings.pinned_limit},
    };
    static const struct { const char *key; double *target; } rates[] = {
        {"kernel_ns", &settings.kernel_ns},
        {"flops_per_second", &settings.flops_per_second},
        {"tensor_flops_per_second", &settings.tensor_flops_per_second},
        {"bytes_per_second", &settings.bytes_per_second},
        {"h2d_bytes_per_second", &settings.h2d_bytes_per_second},
        {"d2h_bytes_per_second", &settings.d2h_bytes_per_second},
        {"pageable_h2d_bytes_per_second", &settings.pageable_h2d_bytes_per_second},
        {"pageable_d2h_bytes_per_second", &settings.pageable_d2h_bytes_per_second},
        {"d2d_bytes_per_second", &settings.d2d_bytes_per_second},
    };
    int index;
    const char *field;
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (!strcmp(key, integers[i].key)) {
            *integers[i].target = script_integer(key, value);
            return true;
        }
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (!strcmp(key, rates[i].key)) {
            *rates[i].target = script_real(key, value);
            if (*rates[i].target <= 0)
                script_die("%s: must be above 0", key);
            return true;
        }
    if (!strcmp(key, "host_copy_bytes_per_second")) {
        library_line("h2d_bytes_per_second", value);
        library_line("d2h_bytes_per_second", value);
    } else if (!strcmp(key, "driver_version")) {
        settings.driver_version = (int)script_integer(key, value);
    } else if (!strcmp(key, "devices")) {
        settings.devices = (int)script_integer(key, value);
        if (settings.devices < 0 || settings.devices > MAX_DEVICES)
            script_die("devices: at most %d", MAX_DEVICES);
    } else if (!strcmp(key, "corrupt")) {
        corrupt_line(value);
    } else {
        return script_device_key(key, MAX_DEVICES, &index, &field)
               && device_line(key, field, &settings.device[index], value);
    }
    return true;
}
