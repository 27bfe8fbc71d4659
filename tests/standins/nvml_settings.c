/* The script keys of the stand-in libnvidia-ml.so.1, with their defaults.
 *
 *   devices N, cuda_version 12080, driver_version TEXT, nvml_version TEXT
 *   device.I.name, .uuid (GPU-...), .pci_bus_id, .vbios_version TEXT
 *   device.I.FIELD VALUE, for each of FIELDS; `none` withholds it
 *
 * The default devices are those of the stand-in libcuda.so.1.
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

static const struct { const char *name; int64_t value; } fields[] = {
#define FIELD_ENTRY(name, value) {#name, value},
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
            device->value[f] = fields[f].value;
    }
}

#define TEXT(member) script_text(key, value, member, sizeof member)

static bool device_line(const char *key, const char *field, struct device *device, char *value)
{
    for (int f = 0; f < FIELD_COUNT; f++)
        if (!strcmp(field, fields[f].name)) {
            device->value[f] = strcmp(value, "none") ? script_integer(key, value) : WITHHELD;
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
    else
        return false;
    return true;
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
    else if (!strcmp(key, "cuda_version"))
        settings.cuda_version = (int)script_integer(key, value);
    else if (strcmp(key, "devices"))
        return false;
    else if ((settings.devices = (int)script_integer(key, value)) < 0
             || settings.devices > MAX_DEVICES)
        script_die("devices: at most %d", MAX_DEVICES);
    return true;
}
