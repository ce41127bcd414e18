//! Volumes that a driver shows once for all pods of the node, before it shows them to the first, and takes away after the last.

use std::path::PathBuf;

use node_plugin_api::csi::messages::NodeUnstageVolumeRequest;
use node_volume::{CsiStep, VolumeError};

use super::manager::{Csi, call_text, failed, is_final};
use super::places::VolumeKey;
use super::publishing::Showing;
use super::records::{self, VolumeData};
use crate::managers::ManagerContext;

impl Csi {
    /// Stages a volume, where its driver wants that; returns the place as the driver sees it.
    pub(super) async fn stage(&self, showing: &Showing) -> Result<String, VolumeError> {
        let (wanted, driver) = (&showing.wanted, &showing.driver);
        if wanted.is_inline || !driver.abilities.stages {
            return Ok(String::new());
        }
        let key = &wanted.key;
        let seen = driver.root.staging(key).display().to_string();
        let _turn = self.turns.of(&key.unique_name()).await;
        showing.check_wanted()?;
        if self.state.lock().is_staged(key) {
            return Ok(seen);
        }
        let was_there = self.state.lock().is_begun(key);
        let place = self.own_root().staging(key);
        self.make_place(showing, place.clone()).await?;
        self.state.lock().staging_begins(key);
        let request = wanted.stage(
            driver.abilities,
            &seen,
            &showing.attached,
            showing.stage_secrets.clone(),
        );
        let staged = self.called(driver.client.stage(request)).await;
        match &staged {
            Ok(()) => self.state.lock().staged(key),
            // What was staged before, as far as is known, stays to be taken away.
            Err(status) if is_final(status) && !was_there => {
                let removed = showing
                    .lane
                    .run("removing the place of a volume", move || records::remove(&place))
                    .await;
                if matches!(removed, Ok(Ok(()))) {
                    self.state.lock().not_staged(key);
                }
            }
            Err(_) => {}
        }
        self.changed();
        let failed = |status| failed(CsiStep::MountDevice, &showing.name, call_text(&status));
        staged.map(|()| seen).map_err(failed)
    }

    async fn make_place(&self, showing: &Showing, place: PathBuf) -> Result<(), VolumeError> {
        let (data, own) = (VolumeData::of_staged(&showing.wanted.key), place.clone());
        let make = move || {
            data.save(&own)?;
            node_sys::fs::make_private_folder(&own)
        };
        let made = showing.lane.run("making the place of a volume", make).await?;
        made.map_err(|source| VolumeError::Io {
            action: "making",
            path: place,
            source,
        })
    }

    /// Takes a staged volume away, unless a pod has come that uses it.
    async fn unstage(&self, key: &VolumeKey) -> Result<(), String> {
        let _turn = self.turns.of(&key.unique_name()).await;
        if !self.state.lock().is_abandoned(key) {
            return Ok(());
        }
        let driver = self.drivers.get(&key.driver)?;
        // Whatever becomes of the call: the next pod has the volume staged again.
        self.state.lock().staging_begins(key);
        if driver.abilities.stages {
            let request = NodeUnstageVolumeRequest {
                volume_id: key.handle.clone(),
                staging_target_path: driver.root.staging(key).display().to_string(),
            };
            let called = self.called(driver.client.unstage(request)).await;
            called.map_err(|status| call_text(&status))?;
        }
        let place = self.own_root().staging(key);
        let removed = self
            .lane()
            .run("removing the place of a volume", move || records::remove(&place))
            .await;
        removed
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())?;
        self.state.lock().not_staged(key);
        Ok(())
    }

    fn begin_unstaging(&self, key: VolumeKey) {
        let own = self.clone();
        let unstaging = async move {
            let outcome = own.unstage(&key).await;
            let now = own.runtime.monotonic();
            own.state.lock().tried(&key, outcome.is_ok(), now);
            if let Err(error) = outcome {
                let volume = key.unique_name();
                tracing::warn!(volume, error, "staged volume not taken away");
            }
            own.changed();
        };
        self.runtime.spawn("staged volume", unstaging).detach();
    }
}

/// Takes volumes away that no pod uses any more, for ever; makes the node's CSINode object before.
pub(crate) async fn take_away_unused(context: ManagerContext) {
    let csi = context.workers.csi.clone();
    let own = csi.clone();
    let making = async move {
        context.registered().await;
        if let Err(error) = own.make_csi_node().await {
            // A driver that registers makes it.
            tracing::warn!(error, "CSINode object not made");
        }
    };
    csi.runtime.spawn("CSINode object", making).detach();
    loop {
        let seen = csi.changes.get();
        let now = csi.runtime.monotonic();
        let due = csi
            .state
            .lock()
            .take_abandoned(now, |driver| csi.drivers.has(driver));
        due.into_iter().for_each(|key| csi.begin_unstaging(key));
        let next = csi.state.lock().next_retry(|driver| csi.drivers.has(driver));
        let retry = async {
            match next {
                Some(at) => csi.runtime.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = csi.changes.wait_for(|now| *now != seen) => {}
            () = retry => {}
        }
    }
}
