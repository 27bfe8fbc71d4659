/* Streams and events of the stand-in libcuda.so.1: each has, or keeps, a virtual time. */
#include "cuda_api.h"

double *clock_of(CUstream handle)
{
    if ((uintptr_t)handle <= 2)
        return &current()->null_stream_ns;
    struct object *stream = object_find(STREAM, handle);
    return stream ? &stream->now_ns : NULL;
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    ENTER(CONTEXT);
    REQUIRE(stream && flags <= 1, INVALID_VALUE);
    struct object *object = object_new(STREAM, current_index());
    object->blocking = !flags;
    *stream = (CUstream)(uintptr_t)object->handle;
    return SUCCESS;
}

EXPORT CUresult cuStreamQuery(CUstream stream)
{
    ENTER(CONTEXT);
    REQUIRE(clock_of(stream), INVALID_HANDLE);
    return capture_refuses_wait(stream);
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    int64_t start = settings.sync_ns ? now_ns() : 0;
    ENTER(CONTEXT);
    REQUIRE(clock_of(stream), INVALID_HANDLE);
    CUresult refused = capture_refuses_wait(stream);
    REQUIRE(!refused, refused);
    if (settings.sync_ns)
        spin(start, settings.sync_ns);
    finished();
    return SUCCESS;
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned flags)
{
    ENTER(CONTEXT);
    REQUIRE(flags <= 1, INVALID_VALUE);
    const struct object *event = object_find(EVENT, handle);
    double *clock = clock_of(stream);
    REQUIRE(event && clock, INVALID_HANDLE);
    CUresult refused = capture_refuses_dependency(stream, event);
    REQUIRE(!refused, refused);
    if (event->recorded && *clock < event->now_ns)
        *clock = event->now_ns;
    return SUCCESS;
}

EXPORT CUresult cuStreamDestroy_v2(CUstream handle)
{
    ENTER(CONTEXT);
    struct object *stream = object_find(STREAM, handle);
    REQUIRE(stream, INVALID_HANDLE);
    object_free(stream);
    return SUCCESS;
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    ENTER(CONTEXT);
    REQUIRE(event && flags <= 7, INVALID_VALUE);
    struct object *object = object_new(EVENT, current_index());
    object->timing = !(flags & 2);
    *event = (CUevent)(uintptr_t)object->handle;
    return SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent handle, CUstream stream)
{
    int64_t start = settings.event_ns ? now_ns() : 0;
    ENTER(CONTEXT);
    struct object *event = object_find(EVENT, handle);
    REQUIRE(event && clock_of(stream), INVALID_HANDLE);
    if (capturing(stream)) /* a place in the graph, and no moment in time */
        return capture_mark(stream, event);
    CUresult refused = capture_refuses_legacy(stream);
    REQUIRE(!refused, refused);
    event->recorded = true;
    event->capture = 0;
    event->now_ns = *clock_of(stream);
    *clock_of(stream) += (double)settings.event_gpu_ns;
    if (settings.event_ns)
        spin(start, settings.event_ns);
    return SUCCESS;
}

EXPORT CUresult cuEventSynchronize(CUevent handle)
{
    ENTER(CONTEXT);
    const struct object *event = object_find(EVENT, handle);
    REQUIRE(event, INVALID_HANDLE);
    REQUIRE(!event->capture, CAPTURED_EVENT);
    return SUCCESS;
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    ENTER(CONTEXT);
    REQUIRE(milliseconds, INVALID_VALUE);
    const struct object *first = object_find(EVENT, start), *last = object_find(EVENT, end);
    REQUIRE(first && last, INVALID_HANDLE);
    REQUIRE(!first->capture && !last->capture, CAPTURED_EVENT);
    REQUIRE(first->recorded && first->timing && last->recorded && last->timing, INVALID_HANDLE);
    *milliseconds = (float)((last->now_ns - first->now_ns) / 1e6);
    return SUCCESS;
}

EXPORT CUresult cuEventDestroy_v2(CUevent handle)
{
    ENTER(CONTEXT);
    struct object *event = object_find(EVENT, handle);
    REQUIRE(event, INVALID_HANDLE);
    object_free(event);
    return SUCCESS;
}
