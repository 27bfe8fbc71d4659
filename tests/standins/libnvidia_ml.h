/* Types shared by the parts of the stand-in libnvidia-ml.so.1; script.h says how it is steered. */
#ifndef LIBNVIDIA_ML_H
#define LIBNVIDIA_ML_H

#include "script.h"

#define MAX_DEVICES 16
#define MAX_PROCESSES 64
#define MAX_REFUSALS 16
#define MAX_XIDS 64

typedef int nvmlReturn_t;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    ARGUMENT_VERSION_MISMATCH = 25,
};

/* Whole-number fields of a device: script key, default. Names carry NVML's own units. */
#define FIELDS(F)                                                                                 \
    F(pci_device_id, 0x278610de)                                                                  \
    F(pci_subsystem_id, 0x16f110de)                                                               \
    F(cc_major, 8)                                                                                \
    F(cc_minor, 9)                                                                                \
    F(memory_total_bytes, UINT64_C(8) << 30)                                                      \
    F(memory_used_bytes, UINT64_C(1) << 30)                                                       \
    F(memory_reserved_bytes, UINT64_C(200) << 20)                                                 \
    F(memory_free_bytes, REST)                                                                    \
    F(temperature_c, 41)                                                                          \
    F(temperature_memory_c, WITHHELD)                                                             \
    F(temperature_slowdown_c, 90)                                                                 \
    F(temperature_shutdown_c, 95)                                                                 \
    F(power_mw, 23500)                                                                            \
    F(power_limit_mw, 200000)                                                                     \
    F(energy_mj, 1234567)                                                                         \
    F(clock_graphics_mhz, 210)                                                                    \
    F(clock_sm_mhz, 210)                                                                          \
    F(clock_memory_mhz, 405)                                                                      \
    F(clock_video_mhz, 1185)                                                                      \
    F(max_clock_graphics_mhz, 3105)                                                               \
    F(max_clock_sm_mhz, 3105)                                                                     \
    F(max_clock_memory_mhz, 10501)                                                                \
    F(max_clock_video_mhz, 2415)                                                                  \
    F(performance_state, 8)                                                                       \
    F(clocks_event_reasons, 1)                                                                    \
    F(power_violation_ns, 2500000000)                                                             \
    F(thermal_violation_ns, 0)                                                                    \
    F(violation_reference_us, 1700000000000000)                                                   \
    F(utilization_gpu_percent, 3)                                                                 \
    F(utilization_memory_percent, 1)                                                              \
    F(encoder_utilization_percent, 0)                                                             \
    F(decoder_utilization_percent, 0)                                                             \
    F(encoder_period_us, 167000)                                                                  \
    F(decoder_period_us, 167000)                                                                  \
    F(pcie_generation, 1)                                                                         \
    F(pcie_generation_max, 4)                                                                     \
    F(pcie_width, 8)                                                                              \
    F(pcie_width_max, 16)                                                                         \
    F(pcie_replays, 0)                                                                            \
    F(pcie_tx_kbps, 1500)                                                                         \
    F(pcie_rx_kbps, 2500)                                                                         \
    F(fan_speed_percent, 30)                                                                      \
    F(ecc_mode, WITHHELD)                                                                         \
    F(ecc_mode_pending, 0)                                                                        \
    F(ecc_corrected_volatile, WITHHELD)                                                           \
    F(ecc_uncorrected_volatile, WITHHELD)                                                         \
    F(ecc_corrected_aggregate, WITHHELD)                                                          \
    F(ecc_uncorrected_aggregate, WITHHELD)                                                        \
    F(remapped_rows_correctable, WITHHELD)                                                        \
    F(remapped_rows_uncorrectable, WITHHELD)                                                      \
    F(remapped_rows_pending, 0)                                                                   \
    F(remapped_rows_failed, 0)                                                                    \
    F(mig_mode, WITHHELD)                                                                         \
    F(mig_mode_pending, 0)                                                                        \
    F(event_types, 0)

enum field {
#define FIELD_ENUM(name, value) name,
    FIELDS(FIELD_ENUM)
#undef FIELD_ENUM
        FIELD_COUNT
};

/* Any 64 bits are a value, so what is none is said beside it. */
enum state {
    GIVEN,
    WITHHELD_BY_THE_DRIVER, /* `none` in a script: it answers "not supported" */
    WHAT_IS_LEFT,           /* of the total, for free memory */
};

struct number {
    uint64_t value;
    enum state state;
};

#define WITHHELD 0, WITHHELD_BY_THE_DRIVER
#define REST 0, WHAT_IS_LEFT

enum process_list { COMPUTE, GRAPHICS, MPS, PROCESS_LISTS };

struct processes {
    bool withheld;
    unsigned count, pid[MAX_PROCESSES];
    uint64_t memory[MAX_PROCESSES];
};

struct refusal {
    char function[64]; /* "*" for every function */
    nvmlReturn_t code;
    int64_t after, before; /* calls to let pass, calls seen */
};

struct xid {
    uint64_t code;
    int64_t times;
};

struct device {
    char name[96], uuid[80], pci_bus_id[32], vbios_version[32];
    struct number number[FIELD_COUNT];
    struct processes processes[PROCESS_LISTS];
    struct refusal refusal[MAX_REFUSALS];
    int refusals;
    struct xid xid[MAX_XIDS];
    int xids;
    bool watched; /* Xid events were asked for */
};

extern struct settings {
    int devices, cuda_version;
    char driver_version[80], nvml_version[80], next_driver[80];
    int64_t next_driver_after; /* calls; 0 for never */
    struct device device[MAX_DEVICES];
} settings;

/* What every function but those that start the library begins with: the code to fail with, or 0. */
nvmlReturn_t enter(struct script_call *call, const char *function);

/* Likewise for functions of a device, which may refuse by itself. */
nvmlReturn_t enter_device(struct script_call *call, const char *function, struct device *device);

nvmlReturn_t give_number(const struct device *device, enum field field, unsigned *number);
nvmlReturn_t give_wide(const struct device *device, enum field field, uint64_t *number);

#define ENTER_WITH(result)                                                                        \
    static struct script_call call;                                                               \
    nvmlReturn_t entered = result;                                                                \
    if (entered)                                                                                  \
    return entered

#define ENTER() ENTER_WITH(enter(&call, __func__))
#define ENTER_DEVICE(device) ENTER_WITH(enter_device(&call, __func__, device))

#define REQUIRE(condition, code)                                                                  \
    if (!(condition))                                                                             \
    return code

/* Functions that give one number of one field. */
#define NUMBER(function, field)                                                                   \
    nvmlReturn_t function(struct device *device, unsigned *number)                                \
    {                                                                                             \
        ENTER_DEVICE(device);                                                                     \
        return give_number(device, field, number);                                                \
    }
#define WIDE(function, field)                                                                     \
    nvmlReturn_t function(struct device *device, uint64_t *number)                                \
    {                                                                                             \
        ENTER_DEVICE(device);                                                                     \
        return give_wide(device, field, number);                                                  \
    }

#endif
