//! Makes a module of `digits.onnx`: its code, and its weights, which the program holds.

use burn_onnx::{LoadStrategy, ModelGen};

fn main() {
    println!("cargo::rerun-if-changed=digits.onnx");
    ModelGen::new().input("digits.onnx").out_dir("module/").load_strategy(LoadStrategy::Embedded).run_from_script();
}
