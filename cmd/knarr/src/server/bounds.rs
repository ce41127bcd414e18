//! Flags that bound what is stored.

use apiserver_server::ExpiryBounds;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct BoundArguments {
    /// Events that one namespace keeps; of more the oldest ones expire before their time. 0 sets no bound
    #[arg(long, default_value_t = ExpiryBounds::default().objects)]
    pub(crate) max_events_per_namespace: u64,
    /// Bytes of memory of the events that one namespace keeps; of more the large ones and then the oldest ones expire before their time. 0 sets no bound
    #[arg(long, default_value_t = ExpiryBounds::default().bytes)]
    pub(crate) max_event_bytes_per_namespace: u64,
}

impl BoundArguments {
    pub(crate) fn events_per_namespace(&self) -> ExpiryBounds {
        ExpiryBounds {
            objects: self.max_events_per_namespace,
            bytes: self.max_event_bytes_per_namespace,
        }
    }
}
