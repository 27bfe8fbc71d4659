/* Graphs of the stand-in libcuda.so.1, made by capturing one stream.
 *
 * A graph is the list of what was submitted while the stream captured: nodes in one line. A capture
 * that would span streams is refused aloud. Source of the rules: CUDA programming guide, "Creating
 * a Graph Using Stream Capture" (prohibited and unhandled operations, invalidation), and cuda.h.
 */
#include "cuda_api.h"

#include <stdio.h>
#include <stdlib.h>

enum { GLOBAL, THREAD_LOCAL, RELAXED };       /* CU_STREAM_CAPTURE_MODE_* */
enum { STATUS_NONE, STATUS_ACTIVE, STATUS_INVALIDATED };

struct recording {
    long users; /* the stream while it captures, then the graph and what was instantiated from it */
    size_t count, room;
    struct operation *nodes;
};

static struct object *first_capturing; /* streams, through next_capturing */
static uint64_t capture_serial;

static void recording_drop(struct recording *recording)
{
    if (--recording->users)
        return;
    free(recording->nodes);
    free(recording);
}

/* Forget what an object that goes away has recorded. */
void capture_forget(struct object *object)
{
    for (struct object **link = &first_capturing; *link; link = &(*link)->next_capturing)
        if (*link == object) {
            *link = object->next_capturing;
            break;
        }
    if (object->recording)
        recording_drop(object->recording);
    object->recording = NULL;
}

static struct object *captured_stream(CUstream handle)
{
    struct object *stream = first_capturing ? object_find(STREAM, handle) : NULL;
    return stream && stream->recording ? stream : NULL;
}

bool capturing(CUstream handle)
{
    return captured_stream(handle) != NULL;
}

CUresult capture_record(CUstream handle, const struct operation *operation)
{
    struct object *stream = captured_stream(handle);
    struct recording *recording = stream->recording;
    REQUIRE(!stream->invalidated, CAPTURE_INVALIDATED);
    if (recording->count == recording->room) {
        recording->room = recording->room ? 2 * recording->room : 64;
        recording->nodes = realloc(recording->nodes, recording->room * sizeof *operation);
        if (!recording->nodes)
            script_die("out of host memory");
    }
    recording->nodes[recording->count++] = *operation;
    return SUCCESS;
}

CUresult capture_mark(CUstream handle, struct object *event)
{
    const struct object *stream = captured_stream(handle);
    REQUIRE(!stream->invalidated, CAPTURE_INVALIDATED);
    event->capture = stream->capture;
    event->recorded = false;
    return SUCCESS;
}

CUresult capture_refuses_wait(CUstream handle)
{
    struct object *stream = captured_stream(handle);
    REQUIRE(stream, capture_refuses_legacy(handle));
    stream->invalidated = true;
    return CAPTURE_UNSUPPORTED;
}

/* Spoil every capture of this context that `forbids` names, and say whether there was one. */
static bool spoil(bool (*forbids)(const struct object *stream))
{
    bool found = false;
    for (struct object *stream = first_capturing; stream; stream = stream->next_capturing)
        if (stream->device == current_index() && forbids(stream))
            found = stream->invalidated = true;
    return found;
}

static bool any(const struct object *stream)
{
    return stream;
}

static bool is_strict(const struct object *stream)
{
    return stream->capture_mode != RELAXED;
}

static bool is_blocking(const struct object *stream)
{
    return stream->blocking;
}

CUresult capture_refuses_context_wait(void)
{
    return spoil(any) ? CAPTURE_UNSUPPORTED : SUCCESS;
}

CUresult capture_refuses_unsafe(void)
{
    return spoil(is_strict) ? CAPTURE_UNSUPPORTED : SUCCESS;
}

CUresult capture_refuses_legacy(CUstream handle)
{
    bool legacy = (uintptr_t)handle <= 1;
    return legacy && spoil(is_blocking) ? CAPTURE_IMPLICIT : SUCCESS;
}

CUresult capture_refuses_dependency(CUstream handle, const struct object *event)
{
    struct object *stream = captured_stream(handle);
    REQUIRE(stream || event->capture, SUCCESS);
    if (!stream) {
        fprintf(stderr, "stand-in %s: a capture that spans streams\n", library_name);
        return NOT_SUPPORTED;
    }
    REQUIRE(!stream->invalidated, CAPTURE_INVALIDATED);
    REQUIRE(event->capture != stream->capture, SUCCESS); /* its own past: nothing to wait for */
    stream->invalidated = true;
    return event->capture ? CAPTURE_MERGE : CAPTURE_ISOLATION;
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream handle, int mode)
{
    ENTER(CONTEXT);
    REQUIRE(mode >= GLOBAL && mode <= RELAXED, INVALID_VALUE);
    REQUIRE((uintptr_t)handle > 1, CAPTURE_UNSUPPORTED);
    struct object *stream = object_find(STREAM, handle);
    REQUIRE(stream, INVALID_HANDLE);
    REQUIRE(!stream->recording, ILLEGAL_STATE);
    stream->recording = calloc(1, sizeof *stream->recording);
    if (!stream->recording)
        script_die("out of host memory");
    stream->recording->users = 1;
    stream->capture = ++capture_serial;
    stream->capture_mode = mode;
    stream->invalidated = false;
    stream->next_capturing = first_capturing;
    first_capturing = stream;
    return SUCCESS;
}

EXPORT CUresult cuStreamIsCapturing(CUstream handle, int *status)
{
    ENTER(CONTEXT);
    REQUIRE(status, INVALID_VALUE);
    REQUIRE(clock_of(handle), INVALID_HANDLE);
    const struct object *stream = captured_stream(handle);
    *status = !stream ? STATUS_NONE : stream->invalidated ? STATUS_INVALIDATED : STATUS_ACTIVE;
    return SUCCESS;
}

EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    ENTER(CONTEXT);
    REQUIRE(graph, INVALID_VALUE);
    REQUIRE(clock_of(handle), INVALID_HANDLE);
    struct object *stream = captured_stream(handle);
    *graph = NULL;
    REQUIRE(stream, ILLEGAL_STATE);
    bool valid = !stream->invalidated;
    if (valid) {
        struct object *object = object_new(GRAPH, current_index());
        object->recording = stream->recording;
        object->recording->users++;
        *graph = (CUgraph)(uintptr_t)object->handle;
    }
    capture_forget(stream);
    return valid ? SUCCESS : CAPTURE_INVALIDATED;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph handle, uint64_t flags)
{
    ENTER(CONTEXT);
    const struct object *graph = object_find(GRAPH, handle);
    REQUIRE(exec && graph && flags < 16, INVALID_VALUE);
    struct object *object = object_new(GRAPH_EXEC, current_index());
    object->recording = graph->recording;
    object->recording->users++;
    *exec = (CUgraphExec)(uintptr_t)object->handle;
    return SUCCESS;
}

EXPORT CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream)
{
    int64_t start = now_ns();
    ENTER(CONTEXT);
    const struct object *exec = object_find(GRAPH_EXEC, handle);
    double *clock = clock_of(stream);
    REQUIRE(exec, INVALID_VALUE);
    REQUIRE(clock, INVALID_HANDLE);
    REQUIRE(!capturing(stream), NOT_SUPPORTED); /* a child graph */
    CUresult refused = capture_refuses_legacy(stream);
    REQUIRE(!refused, refused);
    const struct recording *recording = exec->recording;
    ledger_launch();
    for (size_t i = 0; i < recording->count; i++) {
        CUresult code = operation_run(&recording->nodes[i], clock);
        REQUIRE(!code, code);
    }
    spin(start, graph_duration(recording->count));
    submitted();
    return SUCCESS;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec handle)
{
    ENTER(CONTEXT);
    struct object *exec = object_find(GRAPH_EXEC, handle);
    REQUIRE(exec, INVALID_VALUE);
    object_free(exec);
    return SUCCESS;
}

EXPORT CUresult cuGraphDestroy(CUgraph handle)
{
    ENTER(CONTEXT);
    struct object *graph = object_find(GRAPH, handle);
    REQUIRE(graph, INVALID_VALUE);
    object_free(graph);
    return SUCCESS;
}
