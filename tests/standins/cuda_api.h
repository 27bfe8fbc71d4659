/* What every exported function of the stand-in libcuda.so.1 begins with. */
#ifndef CUDA_API_H
#define CUDA_API_H

#include "cuda_objects.h"

enum level { ALWAYS, INITIALIZED, CONTEXT };

/* The device whose primary context is current on this thread, else NULL. */
struct device *current(void);
int current_index(void);

/* Do what the script says for one call, then check that the driver is in a state to take it. */
CUresult enter(struct script_call *call, const char *function, enum level level);

#define ENTER(level)                                                                              \
    static struct script_call call;                                                               \
    CUresult entered = enter(&call, __func__, level);                                             \
    if (entered)                                                                                  \
    return entered

#define REQUIRE(condition, code)                                                                  \
    if (!(condition))                                                                             \
    return code

/* The virtual clock of a stream; NULL for a bad handle. 0, 1 and 2 are the default streams. */
double *clock_of(CUstream handle);

#endif
