/* softmax: 6 blocks of 256 threads */
extern "C" __global__ void __launch_bounds__(256, 2) softmax_9fe478065f04(
    const float* __restrict__ x0,
    float* __restrict__ softmax) {
  __shared__ __align__(16) float softmax_max_part[64];
  __shared__ __align__(16) float softmax_max_part_1[16];
  __shared__ __align__(16) float softmax_exp[320];
  __shared__ __align__(16) float softmax_sum_part[64];
  __shared__ __align__(16) float softmax_sum_part_1[16];
  const int32_t i0 = blockIdx.x;
  float softmax_max[1];
  float softmax_sum[1];
  float softmax_share[1];
  const int32_t i1_outer = threadIdx.x;
  if (i1_outer < 64) {
    float softmax_max_part_local[1];
    softmax_max_part_local[0] = -INFINITY;
    for (int32_t r = 0; r < 5; ++r) {
      const int32_t t_2 = r * 64;
      float t_3;
      if ((t_2 + i1_outer) < 300) {
        t_3 = x0[((i0 * 300) + t_2) + i1_outer];
      } else {
        t_3 = -INFINITY;
      }
      softmax_max_part_local[0] = td_max_f32(softmax_max_part_local[0], t_3);
    }
    softmax_max_part[i1_outer] = softmax_max_part_local[0];
  }
  __syncthreads();
  const int32_t i1_outer_1 = threadIdx.x;
  if (i1_outer_1 < 16) {
    float softmax_max_part_local_1[1];
    softmax_max_part_local_1[0] = -INFINITY;
    for (int32_t r_1 = 0; r_1 < 4; ++r_1) {
      const float t_4 = td_max_f32(softmax_max_part_local_1[0], softmax_max_part[(r_1 * 16) + i1_outer_1]);
      softmax_max_part_local_1[0] = t_4;
    }
    softmax_max_part_1[i1_outer_1] = softmax_max_part_local_1[0];
  }
  softmax_max[0] = -INFINITY;
  __syncthreads();
  for (int32_t r1 = 0; r1 < 2; ++r1) {
    const float t_5 = td_max_f32(td_max_f32(softmax_max_part_1[r1], softmax_max_part_1[r1 + 8]), td_max_f32(softmax_max_part_1[r1 + 4], softmax_max_part_1[r1 + 12]));
    const float t_6 = td_max_f32(td_max_f32(softmax_max_part_1[r1 + 2], softmax_max_part_1[r1 + 10]), td_max_f32(softmax_max_part_1[r1 + 6], softmax_max_part_1[r1 + 14]));
    softmax_max[0] = td_max_f32(softmax_max[0], td_max_f32(t_5, t_6));
  }
  const int32_t i1_inner = threadIdx.x;
  for (int32_t i1_outer_2 = 0; i1_outer_2 < 2; ++i1_outer_2) {
    if (((i1_outer_2 * 256) + i1_inner) < 320) {
      const int32_t t_7 = i1_outer_2 * 256;
      const int32_t t_8 = t_7 + i1_inner;
      float t_9;
      if (t_8 < 300) {
        const float t_10 = x0[((i0 * 300) + t_7) + i1_inner] - softmax_max[0];
        const bool t_11 = t_10 < (-104.0f);
        const float t_12 = t_11 ? 0.0f : t_10;
        const float t_13 = (t_12 > 89.0f) ? 89.0f : t_12;
        const float t_14 = fmaf(t_13, 0.7213475f, 1.2583039e+07f);
        const float t_15 = t_14 - 1.2583039e+07f;
        const float t_16 = fmaf(t_15, -2.8572135e-06f, fmaf(t_15, -1.3862915f, t_13));
        const float t_17 = fmaf(t_16, fmaf(t_16, fmaf(t_16, 0.00019644047f, 0.0014106171f), 0.008335909f), 0.04166117f);
        const float t_18 = fmaf(t_16, fmaf(t_16, fmaf(t_16, fmaf(t_16, t_17, 0.16666616f), 0.50000036f), 1.0f), 1.0f);
        const float t_19 = td_bits_u32_as_f32((uint32_t)(td_bits_f32_as_u32(t_14) << 23u));
        t_9 = t_11 ? 0.0f : ((t_18 * t_19) * t_19);
      } else {
        t_9 = 0.0f;
      }
      softmax_exp[t_8] = t_9;
    }
  }
  __syncthreads();
  const int32_t i1_outer_3 = threadIdx.x;
  if (i1_outer_3 < 64) {
    float softmax_sum_part_local[1];
    softmax_sum_part_local[0] = 0.0f;
    for (int32_t r_2 = 0; r_2 < 5; ++r_2) {
      softmax_sum_part_local[0] = softmax_sum_part_local[0] + softmax_exp[(r_2 * 64) + i1_outer_3];
    }
    softmax_sum_part[i1_outer_3] = softmax_sum_part_local[0];
  }
  __syncthreads();
  const int32_t i1_outer_4 = threadIdx.x;
  if (i1_outer_4 < 16) {
    float softmax_sum_part_local_1[1];
    softmax_sum_part_local_1[0] = 0.0f;
    for (int32_t r_3 = 0; r_3 < 4; ++r_3) {
      const float t_20 = softmax_sum_part_local_1[0] + softmax_sum_part[(r_3 * 16) + i1_outer_4];
      softmax_sum_part_local_1[0] = t_20;
    }
    softmax_sum_part_1[i1_outer_4] = softmax_sum_part_local_1[0];
  }
  softmax_sum[0] = 0.0f;
  __syncthreads();
  for (int32_t r1_1 = 0; r1_1 < 2; ++r1_1) {
    const float t_21 = (softmax_sum_part_1[r1_1] + softmax_sum_part_1[r1_1 + 8]) + (softmax_sum_part_1[r1_1 + 4] + softmax_sum_part_1[r1_1 + 12]);
    const float t_22 = (softmax_sum_part_1[r1_1 + 2] + softmax_sum_part_1[r1_1 + 10]) + (softmax_sum_part_1[r1_1 + 6] + softmax_sum_part_1[r1_1 + 14]);
    softmax_sum[0] = softmax_sum[0] + (t_21 + t_22);
  }
  softmax_share[0] = 1.0f / softmax_sum[0];
  const int32_t i1_inner_1 = threadIdx.x;
  for (int32_t i1_outer_5 = 0; i1_outer_5 < 2; ++i1_outer_5) {
    if (((i1_outer_5 * 256) + i1_inner_1) < 300) {
      const int32_t t_23 = i1_outer_5 * 256;
      softmax[((i0 * 300) + t_23) + i1_inner_1] = softmax_exp[t_23 + i1_inner_1] * softmax_share[0];
    }
  }
}
