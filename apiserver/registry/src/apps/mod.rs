pub mod deployment;
pub mod replica_set;
