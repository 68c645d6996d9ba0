/* total: 2 x 2 blocks of 64 threads */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void product_332148d25ac3(
    __global const float* restrict x0,
    __global const float* restrict x1,
    __global float* restrict total) {
  __local __attribute__((aligned(16))) float left[1024];
  __local __attribute__((aligned(16))) float right[1024];
  const int32_t m_outer = get_group_id(1);
  const int32_t n_outer = get_group_id(0);
  const int32_t thread = get_local_id(0);
  __attribute__((aligned(16))) float total_local[16];
  #pragma unroll
  for (int32_t m_c = 0; m_c < 4; ++m_c) {
    #pragma unroll
    for (int32_t n_c = 0; n_c < 4; ++n_c) {
      total_local[(m_c * 4) + n_c] = 0.0f;
    }
  }
  float left_ahead[8];
  __attribute__((aligned(16))) float right_ahead[8];
  #pragma unroll
  for (int32_t element_outer = 0; element_outer < 2; ++element_outer) {
    __attribute__((aligned(16))) float x0_lanes[4];
    const int32_t t_2 = td_min_i32(((m_outer * 32) + (element_outer * 16)) + (thread / 4), 32) * 64;
    vstore4(vload4(0, (x0 + t_2 + ((thread % 4) * 4))), 0, x0_lanes);
    #pragma unroll
    for (int32_t i0_inner = 0; i0_inner < 4; ++i0_inner) {
      left_ahead[(element_outer * 4) + i0_inner] = x0_lanes[i0_inner];
    }
  }
  #pragma unroll
  for (int32_t element_outer_1 = 0; element_outer_1 < 2; ++element_outer_1) {
    const int32_t t_3 = ((element_outer_1 * 384) + ((thread / 8) * 48)) + (td_min_i32((n_outer * 8) + (thread % 8), 11) * 4);
    vstore4(vload4(0, (x1 + t_3)), 0, (right_ahead + element_outer_1 * 4));
  }
  for (int32_t k_outer = 0; k_outer < 4; ++k_outer) {
    #pragma unroll
    for (int32_t element_outer_2 = 0; element_outer_2 < 2; ++element_outer_2) {
      #pragma unroll
      for (int32_t i0_inner_2 = 0; i0_inner_2 < 4; ++i0_inner_2) {
        const int32_t t_4 = ((((k_outer % 2) * 512) + ((thread % 4) * 128)) + (i0_inner_2 * 32)) + (element_outer_2 * 16);
        left[t_4 + (thread / 4)] = left_ahead[(element_outer_2 * 4) + i0_inner_2];
      }
    }
    #pragma unroll
    for (int32_t element_outer_1_2 = 0; element_outer_1_2 < 2; ++element_outer_1_2) {
      vstore4(vload4(0, (right_ahead + element_outer_1_2 * 4)), 0, (right + (((k_outer % 2) * 512) + (element_outer_1_2 * 256)) + (thread * 4)));
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (k_outer < 3) {
      #pragma unroll
      for (int32_t element_outer_3 = 0; element_outer_3 < 2; ++element_outer_3) {
        __attribute__((aligned(16))) float x0_lanes_2[4];
        const int32_t t_5 = td_min_i32(((m_outer * 32) + (element_outer_3 * 16)) + (thread / 4), 32) * 64;
        vstore4(vload4(0, (x0 + ((t_5 + (k_outer * 16)) + ((thread % 4) * 4)) + 16)), 0, x0_lanes_2);
        #pragma unroll
        for (int32_t i0_inner_3 = 0; i0_inner_3 < 4; ++i0_inner_3) {
          left_ahead[(element_outer_3 * 4) + i0_inner_3] = x0_lanes_2[i0_inner_3];
        }
      }
      #pragma unroll
      for (int32_t element_outer_1_3 = 0; element_outer_1_3 < 2; ++element_outer_1_3) {
        const int32_t t_6 = (((k_outer * 768) + (element_outer_1_3 * 384)) + ((thread / 8) * 48)) + (td_min_i32((n_outer * 8) + (thread % 8), 11) * 4);
        vstore4(vload4(0, (x1 + t_6 + 768)), 0, (right_ahead + element_outer_1_3 * 4));
      }
    }
    #pragma unroll
    for (int32_t k_inner = 0; k_inner < 16; ++k_inner) {
      #pragma unroll
      for (int32_t m_c_1 = 0; m_c_1 < 4; ++m_c_1) {
        #pragma unroll
        for (int32_t n_c_1 = 0; n_c_1 < 4; ++n_c_1) {
          const int32_t t_7 = (m_c_1 * 4) + n_c_1;
          const int32_t t_8 = ((k_outer % 2) * 512) + (k_inner * 32);
          const float t_9 = fma(left[(t_8 + ((thread / 8) * 4)) + m_c_1], right[(t_8 + ((thread % 8) * 4)) + n_c_1], total_local[t_7]);
          total_local[t_7] = t_9;
        }
      }
    }
  }
  #pragma unroll
  for (int32_t m_inner_inner_inner = 0; m_inner_inner_inner < 4; ++m_inner_inner_inner) {
    if ((((m_outer * 32) + ((thread / 8) * 4)) + m_inner_inner_inner) < 33) {
      if (((n_outer * 8) + (thread % 8)) < 12) {
        const int32_t t_10 = (((m_outer * 1536) + ((thread / 8) * 192)) + (m_inner_inner_inner * 48)) + (n_outer * 32);
        vstore4(vload4(0, (total_local + m_inner_inner_inner * 4)), 0, (total + t_10 + ((thread % 8) * 4)));
      }
    }
  }
}
