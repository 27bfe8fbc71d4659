// Which part of a large product each block computes.
#pragma once

#define TILES_HIGH 8u

// The row and column of the tile of C that this block owns. Blocks that run together own tiles of one
// band, eight high, and read few rows of A and columns of B between them; in the order of the grid
// they would read every column of B.
__device__ __forceinline__ uint2 own_tile()
{
    unsigned int index = blockIdx.y * gridDim.x + blockIdx.x, whole = TILES_HIGH * gridDim.x;
    unsigned int top = index / whole * TILES_HIGH, height = min(TILES_HIGH, gridDim.y - top);
    return make_uint2(top + index % whole % height, index % whole / height);
}
