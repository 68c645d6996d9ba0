/* add: 128 blocks of 256 threads */
__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void add_984bc65316f2(
    __global const float* x0,
    __global const float* restrict x1,
    __global float* add) {
  const int32_t element_outer_outer = get_group_id(0);
  const int32_t element_outer_inner = get_local_id(0);
  __attribute__((aligned(16))) float add_lanes[4];
  __attribute__((aligned(16))) float x0_lanes[4];
  vstore4(vload4(0, (x0 + (element_outer_outer * 1024) + (element_outer_inner * 4))), 0, x0_lanes);
  #pragma unroll
  for (int32_t element_inner = 0; element_inner < 4; ++element_inner) {
    add_lanes[element_inner] = x0_lanes[element_inner] + x1[element_outer_outer % 64];
  }
  vstore4(vload4(0, add_lanes), 0, (add + (element_outer_outer * 1024) + (element_outer_inner * 4)));
}
