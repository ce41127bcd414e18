//! Kinds that the server serves, read again now and then: for controllers that follow references to any kind.

use machinery_client::discovery::DiscoveredResource;
use machinery_client::{Client, ClientError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The kinds are looked up again after this time, as upstream's mapper is reset.
const KEPT_FOR: Duration = Duration::from_secs(30);

type Kinds = Option<(Duration, Arc<Vec<DiscoveredResource>>)>;

/// See the module.
pub(crate) struct ServedKinds {
    client: Client,
    kinds: Mutex<Kinds>,
}

impl ServedKinds {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            kinds: Mutex::default(),
        }
    }

    /// The kinds that are served, at most [`KEPT_FOR`] old.
    pub(crate) async fn all(&self) -> Result<Arc<Vec<DiscoveredResource>>, ClientError> {
        let now = self.client.runtime().monotonic();
        let held = self.kinds.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, kinds)) = held
            && now.saturating_sub(at) < KEPT_FOR
        {
            return Ok(kinds);
        }
        let kinds = Arc::new(self.client.discover().await?.resources);
        *self.kinds.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, kinds.clone()));
        Ok(kinds)
    }
}
