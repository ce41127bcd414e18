//! The pod on the disk: an agent that starts while the API server is away goes on with it.

use super::reporting::revision_of;
use super::{PodWorker, has_begun};
use crate::pods::saved::{SavedPod, forget};
use crate::pods::{full_name, is_static};

/// State of the saved pod on the disk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Saved {
    /// Nothing, or what the agent before this one wrote.
    #[default]
    Before,
    /// These revisions of the object and of its status, and whether services were known.
    Now(u64, Option<u64>, bool),
    /// Nothing any more: the pod is to end.
    Forgotten,
}

impl PodWorker {
    /// Writes the pod as it is now, where it has changed since it was written last.
    pub(super) async fn save(&mut self) {
        let pod = self.pod();
        if is_static(&pod) {
            return;
        }
        let services = self
            .context
            .control
            .services
            .known(&pod)
            .map(|known| known.values);
        let written = self.written.as_ref().map(|(revision, _)| *revision);
        let now = Saved::Now(revision_of(&pod), written, services.is_some());
        // A round that began before the deletion must not write the file again.
        if self.saved == now || self.saved == Saved::Forgotten {
            return;
        }
        let saved = SavedPod::new(&pod, self.previous(&pod), services);
        // A pod that was not admitted is for the next agent to decide on, with what it knows of the node.
        if !has_begun(&saved.pod) {
            return;
        }
        let folder = self.folder();
        let stored = self
            .lane
            .run("saving the pod", move || saved.store(&folder))
            .await;
        let failure = match stored {
            Ok(Ok(())) => {
                self.saved = now;
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        // The next rest tries again.
        tracing::debug!(pod = %full_name(&pod), error = failure, "pod not saved");
    }

    /// The pod is to end: no agent starts anything of it again.
    pub(super) async fn forget_saved(&mut self) {
        if self.saved == Saved::Forgotten {
            return;
        }
        let folder = self.folder();
        match self.lane.run("forgetting the pod", move || forget(&folder)).await {
            Ok(Ok(())) => self.saved = Saved::Forgotten,
            Ok(Err(error)) => tracing::warn!(uid = self.uid, %error, "saved pod not removed"),
            Err(error) => tracing::warn!(uid = self.uid, %error, "saved pod not removed"),
        }
    }
}
