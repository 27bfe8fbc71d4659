/* The script keys of the stand-in libnvidia-ml.so.1, with their defaults.
 *
 *   devices N, cuda_version 12080, driver_version TEXT, nvml_version TEXT
 *   next_driver_version AFTER TEXT
 *                                what the version is once it was asked for AFTER times
 *   device.I.name, .uuid (GPU-...), .pci_bus_id, .vbios_version TEXT
 *   device.I.FIELD VALUE         for each of FIELDS, any 64 bits; `none` withholds it
 *   device.I.compute_pids LIST, .graphics_pids LIST (both `-`), .mps_pids LIST (`none`)
 *                                process ids with commas, each with `:BYTES` or, as under WDDM,
 *                                without its memory; `-` for no process, `none` withholds it
 *   device.I.fail FUNCTION CODE [AFTER]
 *                                return CODE for this device alone once FUNCTION was called AFTER
 *                                times for it (default 0); `*` is every function of a device
 *   device.I.xid CODE [TIMES]    an Xid event, told TIMES times (default 1) to who asked for them,
 *                                in the order of these lines; the driver offers them to nobody
 *                                until `device.I.event_types 8`
 *
 * The default devices are those of the stand-in libcuda.so.1. They are those of WSL2, where many
 * fields are withheld and no events are offered.
 */
#include "libnvidia_ml.h"

#include <stdio.h>
#include <string.h>

const char *const library_name = "libnvidia-ml.so.1";

struct settings settings = {
    .devices = 1,
    .cuda_version = 12080,
    .driver_version = "572.16",
    .nvml_version = "12.572.16",
};

static const struct { const char *name; struct number number; } fields[] = {
#define FIRST_TWO(value, state, ...) {value, state}
#define FIELD_ENTRY(name, value) {#name, NUMBER_OF(value)},
#define NUMBER_OF(...) FIRST_TWO(__VA_ARGS__, GIVEN)
    FIELDS(FIELD_ENTRY)
#undef FIELD_ENTRY
};

__attribute__((constructor)) static void device_defaults(void)
{
    for (int i = 0; i < MAX_DEVICES; i++) {
        struct device *device = &settings.device[i];
        snprintf(device->name, sizeof device->name, "NVIDIA GeForce RTX 4070 (stand-in)");
        snprintf(device->uuid, sizeof device->uuid, "GPU-6d0c5f2e-8a41-4b7d-9e13-%012x", i);
        snprintf(device->pci_bus_id, sizeof device->pci_bus_id, "00000000:%02X:00.0", i + 1);
        snprintf(device->vbios_version, sizeof device->vbios_version, "95.04.31.00.7f");
        for (int f = 0; f < FIELD_COUNT; f++)
            device->number[f] = fields[f].number;
        device->processes[MPS].withheld = true;
    }
}

#define TEXT(member) script_text(key, value, member, sizeof member)

static const char *const lists[PROCESS_LISTS] = {
    [COMPUTE] = "compute_pids", [GRAPHICS] = "graphics_pids", [MPS] = "mps_pids"};

static void process_line(const char *key, struct processes *processes, char *value)
{
    *processes = (struct processes){.withheld = !strcmp(value, "none")};
    if (processes->withheld || !strcmp(value, "-"))
        return;
    char *rest;
    for (char *pid = strtok_r(value, ",", &rest); pid; pid = strtok_r(NULL, ",", &rest)) {
        if (processes->count == MAX_PROCESSES)
            script_die("%s: more than %d processes", key, MAX_PROCESSES);
        char *memory = strchr(pid, ':');
        if (memory)
            *memory++ = '\0';
        processes->memory[processes->count] = memory ? script_unsigned(key, memory) : UINT64_MAX;
        processes->pid[processes->count++] = (unsigned)script_unsigned(key, pid);
    }
}

static void refusal_line(const char *key, struct device *device, char *value)
{
    char *rest, *function = strtok_r(value, " \t", &rest), *code = strtok_r(NULL, " \t", &rest);
    char *after = strtok_r(NULL, " \t", &rest);
    if (!code || strtok_r(NULL, " \t", &rest))
        script_die("%s: expected FUNCTION CODE [AFTER]", key);
    if (device->refusals == MAX_REFUSALS)
        script_die("%s: more than %d", key, MAX_REFUSALS);
    struct refusal *refusal = &device->refusal[device->refusals++];
    if (strcmp(function, "*"))
        script_function(key, function);
    script_text(key, function, refusal->function, sizeof refusal->function);
    refusal->code = (nvmlReturn_t)script_integer(key, code);
    refusal->after = after ? script_integer(key, after) : 0;
}

static void xid_line(const char *key, struct device *device, char *value)
{
    char *rest, *code = strtok_r(value, " \t", &rest), *times = strtok_r(NULL, " \t", &rest);
    if (strtok_r(NULL, " \t", &rest))
        script_die("%s: expected CODE [TIMES]", key);
    if (device->xids == MAX_XIDS)
        script_die("%s: more than %d", key, MAX_XIDS);
    device->xid[device->xids++] =
        (struct xid){script_unsigned(key, code), times ? script_integer(key, times) : 1};
}

static bool device_line(const char *key, const char *field, struct device *device, char *value)
{
    for (int f = 0; f < FIELD_COUNT; f++)
        if (!strcmp(field, fields[f].name)) {
            if (strcmp(value, "none"))
                device->number[f] = (struct number){script_unsigned(key, value), GIVEN};
            else
                device->number[f] = (struct number){WITHHELD};
            return true;
        }
    for (int list = 0; list < PROCESS_LISTS; list++)
        if (!strcmp(field, lists[list])) {
            process_line(key, &device->processes[list], value);
            return true;
        }
    if (!strcmp(field, "name"))
        TEXT(device->name);
    else if (!strcmp(field, "uuid"))
        TEXT(device->uuid);
    else if (!strcmp(field, "pci_bus_id"))
        TEXT(device->pci_bus_id);
    else if (!strcmp(field, "vbios_version"))
        TEXT(device->vbios_version);
    else if (!strcmp(field, "fail"))
        refusal_line(key, device, value);
    else if (!strcmp(field, "xid"))
        xid_line(key, device, value);
    else
        return false;
    return true;
}

static void next_driver_line(const char *key, char *value)
{
    char *version, *after = strtok_r(value, " \t", &version);
    settings.next_driver_after = script_integer(key, after);
    script_text(key, version, settings.next_driver, sizeof settings.next_driver);
}

bool library_line(const char *key, char *value)
{
    int index;
    const char *field;
    if (script_device_key(key, MAX_DEVICES, &index, &field))
        return device_line(key, field, &settings.device[index], value);
    if (!strcmp(key, "driver_version"))
        TEXT(settings.driver_version);
    else if (!strcmp(key, "nvml_version"))
        TEXT(settings.nvml_version);
    else if (!strcmp(key, "next_driver_version"))
        next_driver_line(key, value);
    else if (!strcmp(key, "cuda_version"))
        settings.cuda_version = (int)script_integer(key, value);
    else if (strcmp(key, "devices"))
        return false;
    else if ((settings.devices = (int)script_integer(key, value)) < 0
             || settings.devices > MAX_DEVICES)
        script_die("devices: at most %d", MAX_DEVICES);
    return true;
}
