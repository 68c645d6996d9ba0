// SPDX-License-Identifier: Apache-2.0
/*
 * Tells what is in a picture, in C++17: handles close themselves, errors are exceptions.
 *
 *     treadle compile examples/digits/digits.onnx -o digits.so
 *     treadle runtime build -o .
 *     c++ -std=c++17 -O2 -I. examples/deploy/classify.cpp libtreadle.so -Wl,-rpath,. -o classify
 *     ./classify digits.so examples/deploy/seven.pgm
 */
#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "image.h"
#include "treadle.h"

namespace {

void check(int32_t code, const td_error& error) {
  if (code != TD_OK) throw std::runtime_error(std::string(error.text) + "\n" + error.hint);
}

class Model {
 public:
  explicit Model(const char* path) {
    td_error error;
    td_executor* opened = nullptr;
    check(td_open(path, &opened, &error), error);
    executor_.reset(opened);
  }

  td_tensor_info input(const char* name) const {
    td_error error;
    td_tensor_info info;
    check(td_executor_input(executor_.get(), td_executor_find_input(executor_.get(), name), &info,
                            &error), error);
    return info;
  }

  // The outputs' elements, of which the first output is to be float32.
  std::vector<float> run(const std::vector<float>& values) {
    td_error error;
    td_tensor_info info;
    check(td_executor_output(executor_.get(), 0, &info, &error), error);
    std::vector<float> result(info.bytes / sizeof(float));
    const void* inputs[] = {values.data()};
    std::vector<void*> outputs(static_cast<size_t>(td_executor_num_outputs(executor_.get())));
    outputs[0] = result.data();
    check(td_run(executor_.get(), inputs, outputs.data(), &error), error);
    return result;
  }

 private:
  struct Close {
    void operator()(td_executor* executor) const { td_close(executor); }
  };
  std::unique_ptr<td_executor, Close> executor_;
};

std::vector<float> read_pixels(const char* path, const td_tensor_info& info) {
  image picture;
  if (const char* wrong = image_read(path, &picture))
    throw std::runtime_error(std::string(path) + ": " + wrong);
  std::unique_ptr<float, decltype(&std::free)> samples(picture.samples, &std::free);
  std::vector<float> pixels(info.bytes / sizeof(float));
  image_fill(&picture, info.shape[1], info.shape[2], info.shape[3], pixels.data());
  return pixels;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL PICTURE.pgm\n", argv[0]);
    return 2;
  }
  Model model(argv[1]);
  const td_tensor_info image_input = model.input("image");
  if (image_input.ndim != 4 || std::string(image_input.dtype) != "float32")
    throw std::runtime_error("the model does not take float32[1, channels, height, width]");
  const std::vector<float> scores = model.run(read_pixels(argv[2], image_input));
  const auto best = std::max_element(scores.begin(), scores.end());
  std::printf("class %zu, score %.6f\n", static_cast<size_t>(best - scores.begin()),
              static_cast<double>(*best));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
