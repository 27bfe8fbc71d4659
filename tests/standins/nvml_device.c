/* What a device tells of its bus, limits, memory errors, processes and Xid events. */
#include "libnvidia_ml.h"

#include <time.h>

enum { FIELD_MEMORY_TEMPERATURE = 82, UNSIGNED_INT = 1 };

EXPORT NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, pcie_generation)
EXPORT NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, pcie_generation_max)
EXPORT NUMBER(nvmlDeviceGetCurrPcieLinkWidth, pcie_width)
EXPORT NUMBER(nvmlDeviceGetMaxPcieLinkWidth, pcie_width_max)
EXPORT NUMBER(nvmlDeviceGetPcieReplayCounter, pcie_replays)

/* What was sent, then what was received; the real one counts for 20 ms. */
EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(struct device *device, unsigned counter,
                                                unsigned *kbps)
{
    ENTER_DEVICE(device);
    REQUIRE(counter < 2, INVALID_ARGUMENT);
    return give_number(device, pcie_tx_kbps + counter, kbps);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(struct device *device, unsigned kind,
                                                      unsigned *celsius)
{
    ENTER_DEVICE(device);
    REQUIRE(kind < 2, INVALID_ARGUMENT);
    return give_number(device, kind ? temperature_slowdown_c : temperature_shutdown_c, celsius);
}

struct violation { uint64_t reference_us, violation_ns; };

EXPORT nvmlReturn_t nvmlDeviceGetViolationStatus(struct device *device, unsigned policy,
                                                 struct violation *violation)
{
    ENTER_DEVICE(device);
    REQUIRE(policy < 2 && violation, INVALID_ARGUMENT);
    nvmlReturn_t code = give_wide(device, violation_reference_us, &violation->reference_us);
    enum field field = policy ? thermal_violation_ns : power_violation_ns;
    return code ? code : give_wide(device, field, &violation->violation_ns);
}

struct field_value {
    unsigned field, scope;
    int64_t timestamp, latency_us;
    unsigned type;
    nvmlReturn_t code;
    union { double real; unsigned whole; uint64_t wide; } value;
};

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(struct device *device, int count,
                                             struct field_value *values)
{
    ENTER_DEVICE(device);
    REQUIRE(count > 0 && values, INVALID_ARGUMENT);
    for (int i = 0; i < count; i++) {
        values[i].type = UNSIGNED_INT;
        values[i].code = INVALID_ARGUMENT;
        if (values[i].field == FIELD_MEMORY_TEMPERATURE)
            values[i].code = give_number(device, temperature_memory_c, &values[i].value.whole);
    }
    return SUCCESS;
}

static nvmlReturn_t give_modes(struct device *device, enum field field, unsigned *current,
                               unsigned *pending)
{
    nvmlReturn_t code = give_number(device, field, current);
    return code ? code : give_number(device, field + 1, pending);
}

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(struct device *device, unsigned *current,
                                         unsigned *pending)
{
    ENTER_DEVICE(device);
    return give_modes(device, ecc_mode, current, pending);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(struct device *device, unsigned *current,
                                         unsigned *pending)
{
    ENTER_DEVICE(device);
    return give_modes(device, mig_mode, current, pending);
}

/* Errors: corrected, uncorrected. Counters: volatile, aggregate. */
EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(struct device *device, unsigned error,
                                                unsigned counter, uint64_t *count)
{
    ENTER_DEVICE(device);
    REQUIRE(error < 2 && counter < 2, INVALID_ARGUMENT);
    return give_wide(device, ecc_corrected_volatile + 2 * counter + error, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(struct device *device, unsigned *correctable,
                                              unsigned *uncorrectable, unsigned *pending,
                                              unsigned *failed)
{
    ENTER_DEVICE(device);
    nvmlReturn_t code = give_number(device, remapped_rows_correctable, correctable);
    code = code ? code : give_number(device, remapped_rows_uncorrectable, uncorrectable);
    code = code ? code : give_number(device, remapped_rows_pending, pending);
    return code ? code : give_number(device, remapped_rows_failed, failed);
}

/* Which processes have a context on it, by nvmlProcessInfo_t of _v2 and _v3, which are alike. */

struct process {
    unsigned pid;
    uint64_t used_memory;
    unsigned gpu_instance, compute_instance;
};

static nvmlReturn_t give_processes(const struct device *device, enum process_list list,
                                   unsigned *count, struct process *found)
{
    const struct processes *processes = &device->processes[list];
    REQUIRE(count, INVALID_ARGUMENT);
    REQUIRE(!processes->withheld, NOT_SUPPORTED);
    unsigned room = found ? *count : 0;
    *count = processes->count;
    REQUIRE(room >= processes->count, INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < processes->count; i++)
        found[i] = (struct process){processes->pid[i], processes->memory[i], UINT32_MAX, UINT32_MAX};
    return SUCCESS;
}

#define LIST(function, list)                                                                      \
    nvmlReturn_t function(struct device *device, unsigned *count, struct process *found)          \
    {                                                                                             \
        ENTER_DEVICE(device);                                                                     \
        return give_processes(device, list, count, found);                                        \
    }

EXPORT LIST(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE)
EXPORT LIST(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE)
EXPORT LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS)
EXPORT LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS)
EXPORT LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS)
EXPORT LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS)

/* Xid events: told once each, in the order of the script, to the set that asked for them. */

#define XID_CRITICAL_ERROR 8

struct event {
    struct device *device;
    uint64_t type, data;
    unsigned gpu_instance, compute_instance;
};

static struct event_set { bool made; } only;

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(struct device *device, uint64_t *types)
{
    ENTER_DEVICE(device);
    return give_wide(device, event_types, types);
}

EXPORT nvmlReturn_t nvmlEventSetCreate(struct event_set **set)
{
    ENTER();
    REQUIRE(set, INVALID_ARGUMENT);
    only.made = true;
    *set = &only;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetFree(struct event_set *set)
{
    ENTER();
    REQUIRE(set == &only && only.made, INVALID_ARGUMENT);
    only.made = false;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(struct device *device, uint64_t types,
                                             struct event_set *set)
{
    ENTER_DEVICE(device);
    REQUIRE(set == &only && only.made, INVALID_ARGUMENT);
    uint64_t offered;
    nvmlReturn_t code = give_wide(device, event_types, &offered);
    REQUIRE(!code, code);
    REQUIRE(types && !(types & ~offered), NOT_SUPPORTED);
    device->watched = types & XID_CRITICAL_ERROR;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(struct event_set *set, struct event *event,
                                        unsigned timeout_ms)
{
    ENTER();
    REQUIRE(set == &only && only.made && event, INVALID_ARGUMENT);
    for (int i = 0; i < settings.devices; i++) {
        struct device *device = &settings.device[i];
        for (int x = 0; device->watched && x < device->xids; x++)
            if (device->xid[x].times > 0) {
                device->xid[x].times--;
                *event = (struct event){
                    device, XID_CRITICAL_ERROR, device->xid[x].code, UINT32_MAX, UINT32_MAX};
                return SUCCESS;
            }
    }
    struct timespec rest = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    nanosleep(&rest, NULL);
    return TIMEOUT;
}
