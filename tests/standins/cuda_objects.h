/* Modules, functions, streams and events behind handles that can be checked. */
#ifndef CUDA_OBJECTS_H
#define CUDA_OBJECTS_H

#include "libcuda.h"

enum kind { MODULE = 1, FUNCTION, STREAM, EVENT };

struct object {
    enum kind kind;
    int device;
    uint64_t handle;
    char *ptx;             /* MODULE */
    uint64_t module;       /* FUNCTION: its handle */
    struct kernel *kernel; /* FUNCTION; NULL where the stand-in cannot compute it */
    double now_ns;         /* STREAM: its virtual clock; EVENT: the moment it recorded */
    bool recorded, timing; /* EVENT */
};

struct object *object_new(enum kind kind, int device);
struct object *object_find(enum kind kind, const void *handle); /* NULL: stale or invented */
void object_free(struct object *object);
void object_free_device(int device);

#endif
