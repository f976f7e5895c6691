//! Makes `cargo run` and `cargo test` find libtorch without LD_LIBRARY_PATH, and keeps CUDA linked in.
//!
//! Where libtorch lies is torch-sys's decision (LIBTORCH_USE_PYTORCH first, then LIBTORCH, which
//! `.cargo/config.toml` sets to `.libtorch` unless it is set already); DEP_TCH_LIBTORCH_LIB hands it on.
//! If nothing lies there, torch-sys stops before this runs, at `torch/torch.h`: `make setup` mends it.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "torch")]
    native();
    let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") else {
        return; // built without the feature `torch`
    };
    let lib = Path::new(&lib);
    #[cfg(feature = "torch")]
    bridge(lib);
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
    // Nobody names a symbol of libtorch_cuda: it registers itself when loaded, and a linker drops such a library.
    if lib.join("libtorch_cuda.so").exists() {
        println!("cargo:rustc-link-arg=-L{}", lib.display());
        println!("cargo:rustc-link-arg=-Wl,--push-state,--no-as-needed,-ltorch_cuda,--pop-state");
    }
}

/// Attention on the processor, once for every set of instructions it is tuned for; `src/torch/native.rs`
/// chooses among them. Optimised in every profile: it is arithmetic of the kind that libtorch does.
#[cfg(feature = "torch")]
fn native() {
    const SOURCE: &str = "src/torch/native/attend.cpp";
    println!("cargo:rerun-if-changed={SOURCE}");
    let variants: &[(&str, &[&str])] =
        match std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
            true => &[("plain", &[]), ("avx2", &["-mavx2", "-mfma"])],
            false => &[("plain", &[])],
        };
    // libtorch's threads are OpenMP's too on Linux; elsewhere attention runs on one.
    let threads = std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux");
    for (variant, flags) in variants {
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .std("c++17")
            .file(SOURCE)
            .define("VARIANT", *variant);
        build
            .opt_level(3)
            .flag("-Wno-psabi")
            .flag("-Wno-unknown-pragmas");
        if threads {
            build.flag("-fopenmp");
        }
        for flag in *flags {
            build.flag(flag);
        }
        build.compile(&format!("palimpsest_attend_{variant}"));
    }
    if threads {
        println!("cargo:rustc-link-lib=gomp");
    }
}

/// Operators of libtorch that tch does not hand on, against the headers that torch-sys was built with.
#[cfg(feature = "torch")]
fn bridge(lib: &Path) {
    const SOURCE: &str = "src/torch/native/tensors.cpp";
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=LIBTORCH_INCLUDE");
    let root = match std::env::var_os("LIBTORCH_INCLUDE") {
        Some(root) => root.into(),
        None => lib.parent().unwrap_or(lib).to_path_buf(),
    };
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .file(SOURCE)
        .include(root.join("include"))
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        .opt_level(1)
        .warnings(false)
        .compile("palimpsest_tensors");
}
