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
  __attribute__((aligned(16))) float left_fragment[8];
  __attribute__((aligned(16))) float right_fragment[8];
  #pragma unroll
  for (int32_t element_outer_2 = 0; element_outer_2 < 2; ++element_outer_2) {
    #pragma unroll
    for (int32_t i0_inner_2 = 0; i0_inner_2 < 4; ++i0_inner_2) {
      const int32_t t_4 = ((((thread % 4) * 128) + (i0_inner_2 * 32)) + (element_outer_2 * 16)) + (thread / 4);
      left[t_4] = left_ahead[(element_outer_2 * 4) + i0_inner_2];
    }
  }
  #pragma unroll
  for (int32_t element_outer_1_2 = 0; element_outer_1_2 < 2; ++element_outer_1_2) {
    vstore4(vload4(0, (right_ahead + element_outer_1_2 * 4)), 0, (right + (element_outer_1_2 * 256) + (thread * 4)));
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  vstore4(vload4(0, (left + (thread / 8) * 4)), 0, left_fragment);
  vstore4(vload4(0, (right + (thread % 8) * 4)), 0, right_fragment);
  for (int32_t k_outer = 0; k_outer < 4; ++k_outer) {
    const int32_t k_outer_ahead = td_min_i32(k_outer, 2);
    #pragma unroll
    for (int32_t element_outer_3 = 0; element_outer_3 < 2; ++element_outer_3) {
      __attribute__((aligned(16))) float x0_lanes_2[4];
      const int32_t t_5 = td_min_i32(((m_outer * 32) + (element_outer_3 * 16)) + (thread / 4), 32) * 64;
      vstore4(vload4(0, (x0 + ((t_5 + (k_outer_ahead * 16)) + ((thread % 4) * 4)) + 16)), 0, x0_lanes_2);
      #pragma unroll
      for (int32_t i0_inner_3 = 0; i0_inner_3 < 4; ++i0_inner_3) {
        left_ahead[(element_outer_3 * 4) + i0_inner_3] = x0_lanes_2[i0_inner_3];
      }
    }
    #pragma unroll
    for (int32_t element_outer_1_3 = 0; element_outer_1_3 < 2; ++element_outer_1_3) {
      const int32_t t_6 = ((k_outer_ahead * 768) + (element_outer_1_3 * 384)) + ((thread / 8) * 48);
      vstore4(vload4(0, (x1 + (t_6 + (td_min_i32((n_outer * 8) + (thread % 8), 11) * 4)) + 768)), 0, (right_ahead + element_outer_1_3 * 4));
    }
    #pragma unroll
    for (int32_t k_inner = 0; k_inner < 15; ++k_inner) {
      vstore4(vload4(0, (left + ((((k_outer % 2) * 512) + (k_inner * 32)) + ((thread / 8) * 4)) + 32)), 0, (left_fragment + ((k_inner + 1) % 2) * 4));
      vstore4(vload4(0, (right + ((((k_outer % 2) * 512) + (k_inner * 32)) + ((thread % 8) * 4)) + 32)), 0, (right_fragment + ((k_inner + 1) % 2) * 4));
      #pragma unroll
      for (int32_t m_c_1 = 0; m_c_1 < 4; ++m_c_1) {
        #pragma unroll
        for (int32_t n_c_1 = 0; n_c_1 < 4; ++n_c_1) {
          const int32_t t_7 = ((m_c_1 % 2) == 1) ? (3 - n_c_1) : n_c_1;
          const int32_t t_8 = (m_c_1 * 4) + t_7;
          const int32_t t_9 = (k_inner % 2) * 4;
          const float t_10 = fma(left_fragment[t_9 + m_c_1], right_fragment[t_9 + t_7], total_local[t_8]);
          total_local[t_8] = t_10;
        }
      }
    }
    #pragma unroll
    for (int32_t element_outer_4 = 0; element_outer_4 < 2; ++element_outer_4) {
      #pragma unroll
      for (int32_t i0_inner_4 = 0; i0_inner_4 < 4; ++i0_inner_4) {
        const int32_t t_11 = ((((k_outer + 1) % 2) * 512) + ((thread % 4) * 128)) + (i0_inner_4 * 32);
        left[(t_11 + (element_outer_4 * 16)) + (thread / 4)] = left_ahead[(element_outer_4 * 4) + i0_inner_4];
      }
    }
    #pragma unroll
    for (int32_t element_outer_1_4 = 0; element_outer_1_4 < 2; ++element_outer_1_4) {
      const int32_t t_12 = ((((k_outer + 1) % 2) * 512) + (element_outer_1_4 * 256)) + (thread * 4);
      vstore4(vload4(0, (right_ahead + element_outer_1_4 * 4)), 0, (right + t_12));
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    vstore4(vload4(0, (left + (((k_outer + 1) % 2) * 512) + ((thread / 8) * 4))), 0, left_fragment);
    vstore4(vload4(0, (right + (((k_outer + 1) % 2) * 512) + ((thread % 8) * 4))), 0, right_fragment);
    #pragma unroll
    for (int32_t m_c_1_2 = 0; m_c_1_2 < 4; ++m_c_1_2) {
      #pragma unroll
      for (int32_t n_c_1_2 = 0; n_c_1_2 < 4; ++n_c_1_2) {
        const int32_t t_13 = ((m_c_1_2 % 2) == 1) ? (3 - n_c_1_2) : n_c_1_2;
        const int32_t t_14 = (m_c_1_2 * 4) + t_13;
        const float t_15 = fma(left_fragment[m_c_1_2 + 4], right_fragment[t_13 + 4], total_local[t_14]);
        total_local[t_14] = t_15;
      }
    }
  }
  #pragma unroll
  for (int32_t m_inner_inner_inner = 0; m_inner_inner_inner < 4; ++m_inner_inner_inner) {
    if ((((m_outer * 32) + ((thread / 8) * 4)) + m_inner_inner_inner) < 33) {
      if (((n_outer * 8) + (thread % 8)) < 12) {
        const int32_t t_16 = (((m_outer * 1536) + ((thread / 8) * 192)) + (m_inner_inner_inner * 48)) + (n_outer * 32);
        vstore4(vload4(0, (total_local + m_inner_inner_inner * 4)), 0, (total + t_16 + ((thread % 8) * 4)));
      }
    }
  }
}
