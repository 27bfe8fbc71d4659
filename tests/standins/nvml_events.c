/* Xid events: told once each, in the order of the script, to the set that asked for them. */
#include "libnvidia_ml.h"

#include <time.h>

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
