/* Which processes have a context on a device; memory is never told, as under WDDM. */
#include "libnvidia_ml.h"

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
        found[i] = (struct process){processes->pid[i], UINT64_MAX, UINT32_MAX, UINT32_MAX};
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
