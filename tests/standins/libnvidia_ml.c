/* A stand-in for libnvidia-ml.so.1: what nvidia-ml-py calls for the fields that gpud reads. */
#include "libnvidia_ml.h"

#include <stdio.h>
#include <string.h>

static int users;

static nvmlReturn_t enter(struct script_call *call, const char *function)
{
    nvmlReturn_t code = script_enter(call, function);
    return code ? code : users ? SUCCESS : UNINITIALIZED;
}

#define ENTER_WITH(result)                                                                        \
    static struct script_call call;                                                               \
    nvmlReturn_t entered = result;                                                                \
    if (entered)                                                                                  \
    return entered

#define ENTER() ENTER_WITH(enter(&call, __func__))

#define REQUIRE(condition, code)                                                                  \
    if (!(condition))                                                                             \
    return code

static bool valid(const struct device *device)
{
    for (int i = 0; i < settings.devices; i++)
        if (device == &settings.device[i])
            return true;
    return false;
}

static nvmlReturn_t give_text(const char *text, char *buffer, unsigned size)
{
    REQUIRE(buffer, INVALID_ARGUMENT);
    REQUIRE(strlen(text) < size, INSUFFICIENT_SIZE);
    strcpy(buffer, text);
    return SUCCESS;
}

static nvmlReturn_t give_number(const struct device *device, enum field field, unsigned *number)
{
    REQUIRE(valid(device) && number, INVALID_ARGUMENT);
    REQUIRE(device->value[field] != WITHHELD, NOT_SUPPORTED);
    *number = (unsigned)device->value[field];
    return SUCCESS;
}

static nvmlReturn_t give_wide(const struct device *device, enum field field, uint64_t *number)
{
    REQUIRE(valid(device) && number, INVALID_ARGUMENT);
    REQUIRE(device->value[field] != WITHHELD, NOT_SUPPORTED);
    *number = (uint64_t)device->value[field];
    return SUCCESS;
}

/* The library and the system */

static nvmlReturn_t initialize(void)
{
    users++;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlInit(void)
{
    ENTER_WITH(script_enter(&call, __func__));
    return initialize();
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    ENTER_WITH(script_enter(&call, __func__));
    return initialize();
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    ENTER_WITH(script_enter(&call, __func__));
    REQUIRE(flags <= 3, INVALID_ARGUMENT);
    return initialize();
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
    return give_text(settings.driver_version, version, size);
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
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, struct device **device)
{
    ENTER();
    REQUIRE(uuid && device, INVALID_ARGUMENT);
    for (int i = 0; i < settings.devices; i++)
        if (!strcmp(settings.device[i].uuid, uuid)) {
            *device = &settings.device[i];
            return SUCCESS;
        }
    return NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(struct device *device, char *name, unsigned size)
{
    ENTER();
    REQUIRE(valid(device), INVALID_ARGUMENT);
    return give_text(device->name, name, size);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(struct device *device, char *uuid, unsigned size)
{
    ENTER();
    REQUIRE(valid(device), INVALID_ARGUMENT);
    return give_text(device->uuid, uuid, size);
}

EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(struct device *device, char *version, unsigned size)
{
    ENTER();
    REQUIRE(valid(device), INVALID_ARGUMENT);
    return give_text(device->vbios_version, version, size);
}

struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(struct device *device, struct pci_info *info)
{
    ENTER();
    REQUIRE(valid(device) && info, INVALID_ARGUMENT);
    *info = (struct pci_info){.pci_device_id = 0x278610de, .pci_subsystem_id = 0x16f110de};
    sscanf(device->pci_bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0",
             info->domain & 0xffff, info->bus & 0xff, info->device & 0xff);
    strcpy(info->bus_id, device->pci_bus_id);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(struct device *device, int *major,
                                                       int *minor)
{
    ENTER();
    unsigned *first = (unsigned *)major, *second = (unsigned *)minor;
    nvmlReturn_t code = give_number(device, cc_major, first);
    return code ? code : give_number(device, cc_minor, second);
}

/* Their condition */

struct memory { uint64_t total, free, used; };
struct memory_v2 { unsigned version; uint64_t total, reserved, free, used; };

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory)
{
    ENTER();
    REQUIRE(memory, INVALID_ARGUMENT);
    uint64_t total, used, reserved;
    nvmlReturn_t code = give_wide(device, memory_total_bytes, &total);
    code = code ? code : give_wide(device, memory_used_bytes, &used);
    code = code ? code : give_wide(device, memory_reserved_bytes, &reserved);
    if (!code) /* this older form counts what the driver keeps for itself as used */
        *memory = (struct memory){total, total - used - reserved, used + reserved};
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *memory)
{
    ENTER();
    REQUIRE(memory, INVALID_ARGUMENT);
    REQUIRE(memory->version == (sizeof *memory | 2u << 24), ARGUMENT_VERSION_MISMATCH);
    nvmlReturn_t code = give_wide(device, memory_total_bytes, &memory->total);
    code = code ? code : give_wide(device, memory_used_bytes, &memory->used);
    code = code ? code : give_wide(device, memory_reserved_bytes, &memory->reserved);
    if (!code)
        memory->free = memory->total - memory->used - memory->reserved;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(struct device *device, int sensor, unsigned *celsius)
{
    ENTER();
    REQUIRE(sensor == 0, INVALID_ARGUMENT);
    return give_number(device, temperature_c, celsius);
}

struct temperature { unsigned version; int sensor, celsius; };

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(struct device *device, struct temperature *reading)
{
    ENTER();
    REQUIRE(reading && reading->sensor == 0, INVALID_ARGUMENT);
    REQUIRE(reading->version == (sizeof *reading | 1u << 24), ARGUMENT_VERSION_MISMATCH);
    return give_number(device, temperature_c, (unsigned *)&reading->celsius);
}

/* Clock domains: graphics, SM, memory, video, in NVML's order and ours. */

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(struct device *device, unsigned domain, unsigned *mhz)
{
    ENTER();
    REQUIRE(domain < 4, INVALID_ARGUMENT);
    return give_number(device, clock_graphics_mhz + domain, mhz);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(struct device *device, unsigned domain, unsigned *mhz)
{
    ENTER();
    REQUIRE(domain < 4, INVALID_ARGUMENT);
    return give_number(device, max_clock_graphics_mhz + domain, mhz);
}

struct utilization { unsigned gpu, memory; };

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(struct device *device, struct utilization *rates)
{
    ENTER();
    REQUIRE(rates, INVALID_ARGUMENT);
    nvmlReturn_t code = give_number(device, utilization_gpu_percent, &rates->gpu);
    return code ? code : give_number(device, utilization_memory_percent, &rates->memory);
}

EXPORT nvmlReturn_t nvmlDeviceGetEncoderUtilization(struct device *device, unsigned *percent,
                                                    unsigned *period_us)
{
    ENTER();
    REQUIRE(period_us, INVALID_ARGUMENT);
    *period_us = 167000;
    return give_number(device, encoder_utilization_percent, percent);
}

EXPORT nvmlReturn_t nvmlDeviceGetDecoderUtilization(struct device *device, unsigned *percent,
                                                    unsigned *period_us)
{
    ENTER();
    REQUIRE(period_us, INVALID_ARGUMENT);
    *period_us = 167000;
    return give_number(device, decoder_utilization_percent, percent);
}

/* Functions that give one number of one field. */
#define NUMBER(function, field)                                                                   \
    nvmlReturn_t function(struct device *device, unsigned *number)                                \
    {                                                                                             \
        ENTER();                                                                                  \
        return give_number(device, field, number);                                                \
    }
#define WIDE(function, field)                                                                     \
    nvmlReturn_t function(struct device *device, uint64_t *number)                                \
    {                                                                                             \
        ENTER();                                                                                  \
        return give_wide(device, field, number);                                                  \
    }

EXPORT NUMBER(nvmlDeviceGetPowerUsage, power_mw)
EXPORT NUMBER(nvmlDeviceGetEnforcedPowerLimit, power_limit_mw)
EXPORT NUMBER(nvmlDeviceGetPerformanceState, performance_state)
EXPORT NUMBER(nvmlDeviceGetFanSpeed, fan_speed_percent)
EXPORT WIDE(nvmlDeviceGetTotalEnergyConsumption, energy_mj)
EXPORT WIDE(nvmlDeviceGetCurrentClocksThrottleReasons, clocks_event_reasons)
EXPORT WIDE(nvmlDeviceGetCurrentClocksEventReasons, clocks_event_reasons)
