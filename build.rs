//! Makes `cargo run` and `cargo test` find libtorch without LD_LIBRARY_PATH, and keeps CUDA linked in.
//!
//! Where libtorch lies is torch-sys's decision (LIBTORCH_USE_PYTORCH first, then LIBTORCH, which
//! `.cargo/config.toml` sets to `.libtorch` unless it is set already); DEP_TCH_LIBTORCH_LIB hands it on.
//! If nothing lies there, torch-sys stops before this runs, at `torch/torch.h`: `make setup` mends it.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") else {
        return; // built without the feature `torch`
    };
    let lib = Path::new(&lib);
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
    // Nobody names a symbol of libtorch_cuda: it registers itself when loaded, and a linker drops such a library.
    if lib.join("libtorch_cuda.so").exists() {
        println!("cargo:rustc-link-arg=-L{}", lib.display());
        println!("cargo:rustc-link-arg=-Wl,--push-state,--no-as-needed,-ltorch_cuda,--pop-state");
    }
}
