/* Streams and events of the stand-in libcuda.so.1: each has, or keeps, a virtual time. */
#include "libcuda.h"

double *clock_of(CUstream handle)
{
    if ((uintptr_t)handle <= 2)
        return &current()->null_stream_ns;
    struct object *stream = object_find(STREAM, handle);
    return stream ? &stream->now_ns : NULL;
}

int stream_device(CUstream handle)
{
    if ((uintptr_t)handle <= 2)
        return current_index();
    const struct object *stream = object_find(STREAM, handle);
    return stream ? stream->device : -1;
}

static bool time_line(void)
{
    return settings.time_line < 0 ? virtual_clock_now != NULL : settings.time_line;
}

void clock_reaches(double *clock, int64_t ready_ns)
{
    if (time_line() && *clock < (double)ready_ns)
        *clock = (double)ready_ns;
}

void wait_until(double ns)
{
    if (time_line())
        spin(0, (int64_t)ns);
}

bool is_done(double ns)
{
    return !time_line() || (double)now_ns() >= ns;
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    ENTER(CONTEXT);
    REQUIRE(stream && flags <= 1, INVALID_VALUE);
    struct object *object = object_new(STREAM, current_index());
    *stream = (CUstream)(uintptr_t)object->handle;
    return SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    ENTER(CONTEXT);
    const double *clock = clock_of(stream);
    REQUIRE(clock, INVALID_HANDLE);
    wait_until(*clock + (double)settings.sync_ns);
    if (settings.sync_ns && !time_line())
        spin(now_ns(), settings.sync_ns);
    return SUCCESS;
}

EXPORT CUresult cuStreamQuery(CUstream stream)
{
    int64_t start = now_ns();
    ENTER(CONTEXT);
    const double *clock = clock_of(stream);
    REQUIRE(clock, INVALID_HANDLE);
    if (settings.query_ns)
        spin(start, settings.query_ns);
    return is_done(*clock) ? SUCCESS : NOT_READY;
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned flags)
{
    ENTER(CONTEXT);
    REQUIRE(flags <= 1, INVALID_VALUE);
    const struct object *event = object_find(EVENT, handle);
    double *clock = clock_of(stream);
    REQUIRE(event && clock, INVALID_HANDLE);
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
    object->blocking = flags & 1;
    *event = (CUevent)(uintptr_t)object->handle;
    return SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent handle, CUstream stream)
{
    int64_t start = now_ns();
    ENTER(CONTEXT);
    struct object *event = object_find(EVENT, handle);
    REQUIRE(event && clock_of(stream), INVALID_HANDLE);
    REQUIRE(event->device == stream_device(stream), INVALID_HANDLE);
    event->recorded = true;
    clock_reaches(clock_of(stream), start + settings.event_ns);
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
    wait_until(event->now_ns + (event->blocking ? (double)settings.blocking_ns : 0));
    return SUCCESS;
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    ENTER(CONTEXT);
    REQUIRE(milliseconds, INVALID_VALUE);
    const struct object *first = object_find(EVENT, start), *last = object_find(EVENT, end);
    REQUIRE(first && last, INVALID_HANDLE);
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
