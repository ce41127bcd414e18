//! One binary: server, agent and the commands around them.

fn main() {}
