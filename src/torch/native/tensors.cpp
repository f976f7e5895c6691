// What libtorch has and tch does not hand on. A tensor crosses as tch's pointer, an at::Tensor*. No exception
// leaves this file: what went wrong is given back as a text, which palimpsest_free frees; null is success.
#include <cstdint>
#include <cstring>
#include <exception>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>

extern "C" {

struct AdamWStep {
    at::Tensor *const *weights;
    at::Tensor *const *gradients;
    at::Tensor *const *first;
    at::Tensor *const *second;
    int64_t count;
    const at::Tensor *steps;  // one number: steps taken, this one included
    double lr, beta1, beta2, weight_decay, eps;
};

static char *told(const char *what) {
    char *text = new char[std::strlen(what) + 1];
    std::strcpy(text, what);
    return text;
}

char *palimpsest_adamw(const AdamWStep *s) {
    try {
        auto list = [&](at::Tensor *const *of) {
            std::vector<at::Tensor> tensors;
            for (int64_t i = 0; i < s->count; i++) tensors.push_back(*of[i]);
            return tensors;
        };
        auto weights = list(s->weights), gradients = list(s->gradients);
        auto first = list(s->first), second = list(s->second);
        // The operator only reads the number of steps, so that all weights can share one.
        std::vector<at::Tensor> steps(s->count, *s->steps);
        at::_fused_adamw_(weights, gradients, first, second, {}, steps, s->lr, s->beta1, s->beta2,
                          s->weight_decay, s->eps, false, false);
        return nullptr;
    } catch (const std::exception &error) {
        return told(error.what());
    } catch (...) {
        return told("an unknown fault of libtorch");
    }
}

char *palimpsest_forget_gradients(at::Tensor *const *tensors, int64_t count) {
    try {
        for (int64_t i = 0; i < count; i++) tensors[i]->mutable_grad() = at::Tensor();
        return nullptr;
    } catch (const std::exception &error) {
        return told(error.what());
    } catch (...) {
        return told("an unknown fault of libtorch");
    }
}

void palimpsest_free(char *text) { delete[] text; }

}  // extern "C"
