/* A stand-in for libnvidia-ml.so.1: what nvidia-ml-py calls for the fields that gpud reads. */
#include "libnvidia_ml.h"

#include <stdio.h>
#include <string.h>

static int users;

nvmlReturn_t enter(struct script_call *call, const char *function)
{
    nvmlReturn_t code = script_enter(call, function);
    return code ? code : users ? SUCCESS : UNINITIALIZED;
}

static bool valid(const struct device *device)
{
    for (int i = 0; i < settings.devices; i++)
        if (device == &settings.device[i])
            return true;
    return false;
}

static nvmlReturn_t refused(struct device *device, const char *function)
{
    for (int i = 0; i < device->refusals; i++) {
        struct refusal *refusal = &device->refusal[i];
        bool meant = !strcmp(refusal->function, "*") || !strcmp(refusal->function, function);
        if (meant && refusal->before++ >= refusal->after)
            return refusal->code;
    }
    return SUCCESS;
}

nvmlReturn_t enter_device(struct script_call *call, const char *function, struct device *device)
{
    nvmlReturn_t code = enter(call, function);
    REQUIRE(!code, code);
    REQUIRE(valid(device), INVALID_ARGUMENT);
    return refused(device, function);
}

static nvmlReturn_t give_text(const char *text, char *buffer, unsigned size)
{
    REQUIRE(buffer, INVALID_ARGUMENT);
    REQUIRE(strlen(text) < size, INSUFFICIENT_SIZE);
    strcpy(buffer, text);
    return SUCCESS;
}

nvmlReturn_t give_wide(const struct device *device, enum field field, uint64_t *number)
{
    REQUIRE(number, INVALID_ARGUMENT);
    REQUIRE(device->number[field].state != WITHHELD_BY_THE_DRIVER, NOT_SUPPORTED);
    *number = device->number[field].value;
    return SUCCESS;
}

nvmlReturn_t give_number(const struct device *device, enum field field, unsigned *number)
{
    uint64_t wide;
    REQUIRE(number, INVALID_ARGUMENT);
    nvmlReturn_t code = give_wide(device, field, &wide);
    if (!code)
        *number = (unsigned)wide;
    return code;
}

/* The library and the system */

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    ENTER_WITH(script_enter(&call, __func__));
    REQUIRE(flags <= 3, INVALID_ARGUMENT);
    users++;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    ENTER();
    users--;
    return SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t code)
{
    static struct script_call call;
    static const struct { nvmlReturn_t code; const char *text; } errors[] = {
        {0, "Success"}, {1, "Uninitialized"}, {2, "Invalid Argument"}, {3, "Not Supported"},
        {4, "Insufficient Permissions"}, {6, "Not Found"}, {7, "Insufficient Size"},
        {9, "Driver Not Loaded"}, {10, "Timeout"}, {13, "Function Not Found"},
        {15, "GPU is lost"}, {16, "GPU requires reset"}, {17, "Operating System"},
        {18, "Driver/library version mismatch"}, {23, "Insufficient Resources"},
        {25, "Argument version mismatch"}, {999, "Unknown Error"},
    };
    script_enter(&call, __func__);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code)
            return errors[i].text;
    return "Unknown Error";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    ENTER();
    bool replaced = settings.next_driver_after && call.calls > settings.next_driver_after;
    return give_text(replaced ? settings.next_driver : settings.driver_version, version, size);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
    ENTER();
    return give_text(settings.nvml_version, version, size);
}

static nvmlReturn_t give_cuda_version(int *version)
{
    REQUIRE(version, INVALID_ARGUMENT);
    *version = settings.cuda_version;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    ENTER();
    return give_cuda_version(version);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    ENTER();
    return give_cuda_version(version);
}

/* Which devices there are */

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    ENTER();
    REQUIRE(count, INVALID_ARGUMENT);
    *count = (unsigned)settings.devices;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device)
{
    ENTER();
    REQUIRE(device && index < (unsigned)settings.devices, INVALID_ARGUMENT);
    *device = &settings.device[index];
    return refused(*device, __func__);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(struct device *device, char *name, unsigned size)
{
    ENTER_DEVICE(device);
    return give_text(device->name, name, size);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(struct device *device, char *uuid, unsigned size)
{
    ENTER_DEVICE(device);
    return give_text(device->uuid, uuid, size);
}

EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(struct device *device, char *version, unsigned size)
{
    ENTER_DEVICE(device);
    return give_text(device->vbios_version, version, size);
}

struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(struct device *device, struct pci_info *info)
{
    ENTER_DEVICE(device);
    REQUIRE(info, INVALID_ARGUMENT);
    *info = (struct pci_info){0};
    nvmlReturn_t code = give_number(device, pci_device_id, &info->pci_device_id);
    code = code ? code : give_number(device, pci_subsystem_id, &info->pci_subsystem_id);
    REQUIRE(!code, code);
    sscanf(device->pci_bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0",
             info->domain & 0xffff, info->bus & 0xff, info->device & 0xff);
    strcpy(info->bus_id, device->pci_bus_id);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(struct device *device, int *major,
                                                       int *minor)
{
    ENTER_DEVICE(device);
    unsigned *first = (unsigned *)major, *second = (unsigned *)minor;
    nvmlReturn_t code = give_number(device, cc_major, first);
    return code ? code : give_number(device, cc_minor, second);
}

/* Their condition */

struct memory { uint64_t total, free, used; };
struct memory_v2 { unsigned version; uint64_t total, reserved, free, used; };

static nvmlReturn_t give_memory(const struct device *device, struct memory_v2 *memory)
{
    const struct number *left = &device->number[memory_free_bytes];
    nvmlReturn_t code = give_wide(device, memory_total_bytes, &memory->total);
    code = code ? code : give_wide(device, memory_used_bytes, &memory->used);
    code = code ? code : give_wide(device, memory_reserved_bytes, &memory->reserved);
    code = code ? code : give_wide(device, memory_free_bytes, &memory->free);
    if (!code && left->state == WHAT_IS_LEFT)
        memory->free = memory->total - memory->used - memory->reserved;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory)
{
    ENTER_DEVICE(device);
    REQUIRE(memory, INVALID_ARGUMENT);
    struct memory_v2 whole;
    nvmlReturn_t code = give_memory(device, &whole);
    if (!code) /* this older form counts what the driver keeps for itself as used */
        *memory = (struct memory){whole.total, whole.free, whole.used + whole.reserved};
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *memory)
{
    ENTER_DEVICE(device);
    REQUIRE(memory, INVALID_ARGUMENT);
    REQUIRE(memory->version == (sizeof *memory | 2u << 24), ARGUMENT_VERSION_MISMATCH);
    return give_memory(device, memory);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(struct device *device, int sensor, unsigned *celsius)
{
    ENTER_DEVICE(device);
    REQUIRE(sensor == 0, INVALID_ARGUMENT);
    return give_number(device, temperature_c, celsius);
}

struct temperature { unsigned version; int sensor, celsius; };

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(struct device *device, struct temperature *reading)
{
    ENTER_DEVICE(device);
    REQUIRE(reading && reading->sensor == 0, INVALID_ARGUMENT);
    REQUIRE(reading->version == (sizeof *reading | 1u << 24), ARGUMENT_VERSION_MISMATCH);
    return give_number(device, temperature_c, (unsigned *)&reading->celsius);
}

/* Clock domains: graphics, SM, memory, video, in NVML's order and ours. */

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(struct device *device, unsigned domain, unsigned *mhz)
{
    ENTER_DEVICE(device);
    REQUIRE(domain < 4, INVALID_ARGUMENT);
    return give_number(device, clock_graphics_mhz + domain, mhz);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(struct device *device, unsigned domain, unsigned *mhz)
{
    ENTER_DEVICE(device);
    REQUIRE(domain < 4, INVALID_ARGUMENT);
    return give_number(device, max_clock_graphics_mhz + domain, mhz);
}

struct utilization { unsigned gpu, memory; };

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(struct device *device, struct utilization *rates)
{
    ENTER_DEVICE(device);
    REQUIRE(rates, INVALID_ARGUMENT);
    nvmlReturn_t code = give_number(device, utilization_gpu_percent, &rates->gpu);
    return code ? code : give_number(device, utilization_memory_percent, &rates->memory);
}

EXPORT nvmlReturn_t nvmlDeviceGetEncoderUtilization(struct device *device, unsigned *percent,
                                                    unsigned *period_us)
{
    ENTER_DEVICE(device);
    nvmlReturn_t code = give_number(device, encoder_utilization_percent, percent);
    return code ? code : give_number(device, encoder_period_us, period_us);
}

EXPORT nvmlReturn_t nvmlDeviceGetDecoderUtilization(struct device *device, unsigned *percent,
                                                    unsigned *period_us)
{
    ENTER_DEVICE(device);
    nvmlReturn_t code = give_number(device, decoder_utilization_percent, percent);
    return code ? code : give_number(device, decoder_period_us, period_us);
}

EXPORT NUMBER(nvmlDeviceGetPowerUsage, power_mw)
EXPORT NUMBER(nvmlDeviceGetEnforcedPowerLimit, power_limit_mw)
EXPORT NUMBER(nvmlDeviceGetPerformanceState, performance_state)
EXPORT NUMBER(nvmlDeviceGetFanSpeed, fan_speed_percent)
EXPORT WIDE(nvmlDeviceGetTotalEnergyConsumption, energy_mj)
EXPORT WIDE(nvmlDeviceGetCurrentClocksThrottleReasons, clocks_event_reasons)
EXPORT WIDE(nvmlDeviceGetCurrentClocksEventReasons, clocks_event_reasons)
