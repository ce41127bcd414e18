//! Kinds of batch.

pub mod cron_job;
pub mod job;
