//! Automation: up, down, test, ci, tools, codegen, diff, conformance, bench.

fn main() {}
