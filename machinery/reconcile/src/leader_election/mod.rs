//! Leader election through a Lease, as client-go does it: one of several candidates runs a component, the others wait.
//!
//! A candidate that does not hold the lease watches it change: it takes over when the lease stood still for its duration,
//! by the candidate's own clock, so that clocks need not agree. The holder renews it every retry period. A duty that client-go
//! leaves to the end of the process is explicit here: [`Leadership::holds`] is true only until the renew deadline has
//! passed since the last renewal that succeeded *was sent*. The lease lasts longer than that, so a leader that is cut off
//! or was paused knows that its time is over before another candidate may begin.

mod config;
mod elector;
mod leadership;

pub use config::ElectionConfig;
pub use elector::Elector;
pub use leadership::Leadership;
