/* What a device tells of its bus, its limits and its memory's errors. */
#include "libnvidia_ml.h"

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
