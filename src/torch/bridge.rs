//! Calls into `native/tensors.cpp`: operators of libtorch that tch does not hand on.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};

use tch::{Kind, Tensor};

use super::optimizer::AdamKnobs;

type Pointer = *const std::ffi::c_void;

/// As in tensors.cpp.
#[repr(C)]
struct AdamWStep {
    weights: *const Pointer,
    gradients: *const Pointer,
    first: *const Pointer,
    second: *const Pointer,
    count: i64,
    steps: Pointer,
    lr: f64,
    beta1: f64,
    beta2: f64,
    weight_decay: f64,
    eps: f64,
}

unsafe extern "C" {
    fn palimpsest_adamw(step: *const AdamWStep) -> *mut c_char;
    fn palimpsest_forget_gradients(tensors: *const Pointer, count: i64) -> *mut c_char;
    fn palimpsest_free(text: *mut c_char);
}

fn pointers(tensors: &[Tensor]) -> Vec<Pointer> {
    tensors.iter().map(|t| t.as_ptr() as Pointer).collect()
}

/// Panics with what went wrong, as tch's own operators do; the engine makes an error of it.
fn check(text: *mut c_char) {
    if text.is_null() {
        return;
    }
    // SAFETY: tensors.cpp gives null or a text of its own that ends in a zero; it is freed once.
    let said = unsafe {
        let said = CStr::from_ptr(text).to_string_lossy().into_owned();
        palimpsest_free(text);
        said
    };
    panic!("{said}");
}

/// What AdamW changes: lists of one length, tensor by tensor of one size, kind and device.
#[derive(Default)]
pub(super) struct AdamWTensors {
    pub weights: Vec<Tensor>,
    pub gradients: Vec<Tensor>,
    pub first: Vec<Tensor>,
    pub second: Vec<Tensor>,
}

/// Step number `steps` (from 1) of AdamW on all of these at once, with libtorch's fused operator.
pub(super) fn adamw(tensors: &AdamWTensors, steps: i64, knobs: AdamKnobs) {
    let AdamWTensors {
        weights,
        gradients,
        first,
        second,
    } = tensors;
    let count = weights.len();
    let Some(device) = weights.first().map(Tensor::device) else {
        return;
    };
    assert!(
        [gradients, first, second]
            .iter()
            .all(|list| list.len() == count),
        "one gradient and two moments for each weight"
    );
    let _guard = tch::no_grad_guard();
    let steps = Tensor::from(steps as f32)
        .to_kind(Kind::Float)
        .to_device(device);
    let lists = [weights, gradients, first, second].map(|list| pointers(list));
    let step = AdamWStep {
        weights: lists[0].as_ptr(),
        gradients: lists[1].as_ptr(),
        first: lists[2].as_ptr(),
        second: lists[3].as_ptr(),
        count: count as i64,
        steps: steps.as_ptr() as Pointer,
        lr: knobs.lr,
        beta1: knobs.betas.0,
        beta2: knobs.betas.1,
        weight_decay: knobs.weight_decay,
        eps: knobs.eps,
    };
    // SAFETY: every list has `count` pointers to tensors that live until the call ends; libtorch checks
    // their sizes, kinds and devices.
    check(unsafe { palimpsest_adamw(&raw const step) });
}

/// Drops the gradients of these tensors, and the memory they take.
pub(super) fn forget_gradients(tensors: &[Tensor]) {
    let list = pointers(tensors);
    // SAFETY: the pointers are of tensors that live until the call ends.
    check(unsafe { palimpsest_forget_gradients(list.as_ptr(), list.len() as i64) });
}
