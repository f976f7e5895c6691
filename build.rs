//! Writes the folder of libtorch into the binary's run path, so that `cargo run` and `cargo test` need no LD_LIBRARY_PATH.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
    }
}
