/* Types shared by the parts of the stand-in libnvidia-ml.so.1; script.h says how it is steered. */
#ifndef LIBNVIDIA_ML_H
#define LIBNVIDIA_ML_H

#include "script.h"

#define MAX_DEVICES 16
#define WITHHELD INT64_MIN /* `none` in a script: the driver answers "not supported" */

typedef int nvmlReturn_t;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    ARGUMENT_VERSION_MISMATCH = 25,
};

/* Whole-number fields of a device: script key, default. Names carry NVML's own units. */
#define FIELDS(F)                                                                                 \
    F(memory_total_bytes, INT64_C(8) << 30)                                                       \
    F(memory_used_bytes, INT64_C(1) << 30)                                                        \
    F(memory_reserved_bytes, INT64_C(200) << 20)                                                  \
    F(temperature_c, 41)                                                                          \
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
    F(utilization_gpu_percent, 3)                                                                 \
    F(utilization_memory_percent, 1)                                                              \
    F(encoder_utilization_percent, 0)                                                             \
    F(decoder_utilization_percent, 0)                                                             \
    F(fan_speed_percent, 30)                                                                      \
    F(clocks_event_reasons, 1)                                                                    \
    F(cc_major, 8)                                                                                \
    F(cc_minor, 9)

enum field {
#define FIELD_ENUM(name, value) name,
    FIELDS(FIELD_ENUM)
#undef FIELD_ENUM
        FIELD_COUNT
};

struct device {
    char name[96], uuid[80], pci_bus_id[32], vbios_version[32];
    int64_t value[FIELD_COUNT];
};

extern struct settings {
    int devices, cuda_version;
    char driver_version[80], nvml_version[80];
    struct device device[MAX_DEVICES];
} settings;

#endif
