/* The devices of the stand-in libcuda.so.1 as they are before, and after, the script says more. */
#include "libcuda.h"

#include <stdio.h>
#include <string.h>

#define GIB (UINT64_C(1) << 30)

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
            .l2_bytes = 262144,
            .memory_clock_khz = 10501000,
            .memory_bus_bits = 192,
            .clock_khz = 2475000,
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

bool device_line(const char *key, const char *field, struct device *device, char *value)
{
    const struct { const char *field; int *target; } integers[] = {
        {"sm_count", &device->sm_count},
        {"cc_major", &device->cc_major},
        {"cc_minor", &device->cc_minor},
        {"l2_bytes", &device->l2_bytes},
        {"memory_clock_khz", &device->memory_clock_khz},
        {"memory_bus_bits", &device->memory_bus_bits},
        {"mps", &device->mps},
        {"clock_khz", &device->clock_khz},
    };
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (!strcmp(field, integers[i].field)) {
            *integers[i].target = (int)script_integer(key, value);
            return true;
        }
    if (rates_line(key, field, value, &device->rates))
        return true;
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
    else if (!strcmp(field, "launch_ns"))
        device->launch_ns = script_integer(key, value);
    else if (!strcmp(field, "free_mem"))
        device->free_mem = (uint64_t)script_integer(key, value);
    else
        return false;
    return true;
}
