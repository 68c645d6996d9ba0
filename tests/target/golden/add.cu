/* add: 128 blocks of 256 threads */
extern "C" __global__ void __launch_bounds__(256, 2) add_984bc65316f2(
    const float* x0,
    const float* __restrict__ x1,
    float* add) {
  const int32_t element_outer_outer = blockIdx.x;
  const int32_t element_outer_inner = threadIdx.x;
  __align__(16) float add_lanes[4];
  __align__(16) float x0_lanes[4];
  *(float4*)x0_lanes = *(const float4*)(x0 + (element_outer_outer * 1024) + (element_outer_inner * 4));
  #pragma unroll
  for (int32_t element_inner = 0; element_inner < 4; ++element_inner) {
    add_lanes[element_inner] = x0_lanes[element_inner] + x1[element_outer_outer % 64];
  }
  *(float4*)(add + (element_outer_outer * 1024) + (element_outer_inner * 4)) = *(const float4*)add_lanes;
}
