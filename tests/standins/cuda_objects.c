#include "libcuda.h"

#include <stdlib.h>

#define SLOTS 8192

static struct object *objects[SLOTS];
static uint64_t serial;

/* A handle is its kind and a serial number, never a pointer: a stale one cannot be followed. */
struct object *object_new(enum kind kind, int device)
{
    for (int tries = 0; tries < SLOTS; tries++) {
        struct object **slot = &objects[++serial % SLOTS];
        if (*slot)
            continue;
        *slot = calloc(1, sizeof **slot);
        if (!*slot)
            break;
        **slot = (struct object){
            .kind = kind, .device = device, .handle = (uint64_t)kind << 44 | serial};
        return *slot;
    }
    script_die("more than %d objects", SLOTS);
}

struct object *object_find(enum kind kind, const void *handle)
{
    uint64_t wanted = (uintptr_t)handle, number = wanted & ((UINT64_C(1) << 44) - 1);
    struct object *object = objects[number % SLOTS];
    return object && object->handle == wanted && object->kind == kind ? object : NULL;
}

void object_free(struct object *object)
{
    objects[object->handle % SLOTS] = NULL;
    nodes_drop(object);
    free(object->image);
    free(object);
}

void object_free_device(int device)
{
    for (int i = 0; i < SLOTS; i++)
        if (objects[i] && objects[i]->device == device)
            object_free(objects[i]);
}

double object_latest_ns(int device)
{
    double latest_ns = 0;
    for (int i = 0; i < SLOTS; i++) {
        const struct object *object = objects[i];
        if (object && object->kind == STREAM && object->device == device && object->now_ns > latest_ns)
            latest_ns = object->now_ns;
    }
    return latest_ns;
}
