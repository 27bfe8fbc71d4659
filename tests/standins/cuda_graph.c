/* Graphs of the stand-in libcuda.so.1, built node by node: kernels, each after the one before it.
 *
 * A graph that is not one line is refused aloud. Source of the structures: cuda.h,
 * CUDA_KERNEL_NODE_PARAMS_v1 (CUDA 10.0) and _v2 (12.0).
 */
#include "libcuda.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_NODES 65536

typedef struct {
    CUfunction function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void **params, **extra;
} kernel_node_v1;

typedef struct {
    kernel_node_v1 v1;
    void *kernel; /* CUkernel, instead of the function */
    CUcontext context; /* NULL: the current one */
} kernel_node_v2;

_Static_assert(sizeof(kernel_node_v1) == 56 && sizeof(kernel_node_v2) == 72, "not cuda.h's layout");

struct nodes {
    long users; /* the graph, and what was instantiated from it */
    size_t count, room;
    struct operation *operations;
};

void nodes_drop(struct object *object)
{
    struct nodes *nodes = object->nodes;
    if (!nodes || --nodes->users)
        return;
    free(nodes->operations);
    free(nodes);
}

/* A node's handle is its graph's serial number and its place. */
static CUgraphNode node_handle(const struct object *graph, size_t place)
{
    return (CUgraphNode)(uintptr_t)(graph->handle * MOST_NODES + place + 1);
}

EXPORT CUresult cuGraphCreate(CUgraph *handle, unsigned flags)
{
    ENTER(CONTEXT);
    REQUIRE(handle && !flags, INVALID_VALUE);
    struct object *graph = object_new(GRAPH, current_index());
    graph->nodes = calloc(1, sizeof *graph->nodes);
    if (!graph->nodes)
        script_die("out of host memory");
    graph->nodes->users = 1;
    *handle = (CUgraph)(uintptr_t)graph->handle;
    return SUCCESS;
}

static CUresult add_node(CUgraphNode *node, const struct object *graph, const CUgraphNode *after,
                         size_t count, const struct operation *operation)
{
    struct nodes *nodes = graph->nodes;
    if (count != (nodes->count > 0) || (count && *after != node_handle(graph, nodes->count - 1))) {
        fprintf(stderr, "stand-in %s: a graph that is not one line\n", library_name);
        return NOT_SUPPORTED;
    }
    REQUIRE(nodes->count + 1 < MOST_NODES, OUT_OF_MEMORY);
    if (nodes->count == nodes->room) {
        nodes->room = nodes->room ? 2 * nodes->room : 64;
        nodes->operations = realloc(nodes->operations, nodes->room * sizeof *operation);
        if (!nodes->operations)
            script_die("out of host memory");
    }
    nodes->operations[nodes->count] = *operation;
    *node = node_handle(graph, nodes->count++);
    return SUCCESS;
}

static CUresult add_kernel(CUgraphNode *node, CUgraph handle, const CUgraphNode *after,
                           size_t count, const kernel_node_v1 *given)
{
    const struct object *graph = object_find(GRAPH, handle);
    struct operation operation;
    REQUIRE(node && graph && given && (after || !count), INVALID_VALUE);
    CUresult code = kernel_operation(
        given->function, (unsigned[3]){given->grid_x, given->grid_y, given->grid_z},
        (unsigned[3]){given->block_x, given->block_y, given->block_z}, given->shared_bytes,
        given->params, given->extra, &operation);
    return code ? code : add_node(node, graph, after, count, &operation);
}

EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                     size_t count, const kernel_node_v1 *given)
{
    ENTER(CONTEXT);
    return add_kernel(node, graph, after, count, given);
}

EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                        size_t count, const kernel_node_v2 *given)
{
    ENTER(CONTEXT);
    REQUIRE(given, INVALID_VALUE);
    REQUIRE(!given->kernel, NOT_SUPPORTED);
    REQUIRE(!given->context || (uintptr_t)given->context == current()->context, INVALID_CONTEXT);
    return add_kernel(node, graph, after, count, &given->v1);
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph handle, uint64_t flags)
{
    ENTER(CONTEXT);
    const struct object *graph = object_find(GRAPH, handle);
    REQUIRE(exec && graph && flags < 16, INVALID_VALUE);
    struct object *object = object_new(GRAPH_EXEC, current_index());
    object->nodes = graph->nodes;
    object->nodes->users++;
    *exec = (CUgraphExec)(uintptr_t)object->handle;
    return SUCCESS;
}

EXPORT CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream)
{
    int64_t start = now_ns();
    ENTER(CONTEXT);
    const struct object *exec = object_find(GRAPH_EXEC, handle);
    REQUIRE(exec, INVALID_VALUE);
    REQUIRE(clock_of(stream), INVALID_HANDLE);
    const struct nodes *nodes = exec->nodes;
    int64_t takes = graph_duration(nodes->count);
    for (size_t i = 0; i < nodes->count; i++) {
        CUresult code = submit(stream, &nodes->operations[i], start + takes);
        REQUIRE(!code, code);
    }
    spin(start, takes);
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
