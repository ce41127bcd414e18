//! One life of the store: how it starts, and how it ends.

use apiserver_storage::encryption::{Encryption, ResourceNames};
use apiserver_storage::{LogOptions, LogStorage, Quota, Storage};
use machinery_runtime::{Runtime, Scope, SimDisk};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Instance {
    pub(crate) scope: Scope,
    pub(crate) storage: Arc<LogStorage>,
}

/// The end of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Properly.
    Close,
    /// kill -9: everything written is there.
    Kill,
    /// The power goes between two steps.
    Crash,
    /// The power goes in the middle of one.
    PowerOff,
    /// A sync fails, the process ends, the machine goes on.
    SyncFailure,
    /// A sync fails, then the power goes as well.
    SyncFailureThenCrash,
}

/// Each of four pieces holds the largest batch of the story.
pub(crate) const RESERVE_BYTES: u64 = 256 << 10;
/// Clients give shorter times to live.
pub(crate) const LONGEST_TTL: Duration = Duration::from_secs(2);

/// A time for which the reader of every change is never behind.
const RETENTION: Duration = Duration::from_millis(12);

/// State that all lives of one simulation share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct World {
    pub(crate) is_encrypted: bool,
    /// Compacts by itself.
    pub(crate) retention: Duration,
}

impl World {
    pub(crate) fn draw(runtime: &Runtime) -> Self {
        let one_in = |n: u64| runtime.random_u64().is_multiple_of(n);
        Self {
            is_encrypted: one_in(3),
            retention: if one_in(2) { RETENTION } else { Duration::ZERO },
        }
    }
}

/// A quota so small that clients meet its bounds now and then.
pub(crate) fn quota() -> Quota {
    Quota {
        store_bytes: 18 << 10,
        namespace_bytes: 6 << 10,
        system_namespaces: vec!["b".into()],
    }
}

/// Small enough that segments, checkpoints and reads of the log happen all the time.
pub(crate) fn options() -> LogOptions {
    LogOptions {
        history_bytes: 12 << 10,
        segment_bytes: 12 << 10,
        checkpoint_bytes: 6 << 10,
        retention: Duration::ZERO,
        reserve_bytes: RESERVE_BYTES,
        scrub_interval: Duration::from_millis(7),
        space_retry: Duration::from_millis(3),
        longest_ttl: LONGEST_TTL,
        quota: quota(),
        on_fatal: Arc::new(|_| {}),
        ..LogOptions::new("/data")
    }
}

/// The same with everything encrypted.
fn encrypted(runtime: &Runtime) -> LogOptions {
    let config = b"apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: ['*.*']
  providers: [{aesgcm: {keys: [{name: k, secret: MTIzNDU2Nzg5MDEyMzQ1Ng==}]}}]
";
    let encryption = Encryption::new(runtime, ResourceNames::default(), Path::new("config"), config);
    LogOptions {
        encryption: Some(Arc::new(encryption.unwrap())),
        ..options()
    }
}

impl Instance {
    /// Recovery must succeed, unless the power goes while it works; then the next one must.
    pub(crate) async fn start(runtime: &Runtime, disk: &SimDisk, world: World) -> Self {
        let options = if world.is_encrypted {
            encrypted(runtime)
        } else {
            options()
        };
        let options = LogOptions {
            retention: world.retention,
            ..options
        };
        loop {
            if runtime.random_u64().is_multiple_of(4) {
                disk.power_off_after(u32::try_from(runtime.random_u64() % 10).unwrap());
            }
            let scope = runtime.child_scope();
            match LogStorage::open(scope.runtime(), options.clone()).await {
                Ok((storage, report)) => {
                    assert_eq!(report.problems, Vec::<String>::new());
                    disk.keep_power();
                    if disk.is_off() {
                        // It went behind recovery, while the reserve was laid out.
                        drop(storage);
                        scope.stopped().await;
                        disk.crash();
                        continue;
                    }
                    return Self {
                        scope,
                        storage: Arc::new(storage),
                    };
                }
                Err(error) => {
                    assert!(disk.is_off(), "recovery failed with the power on: {error}");
                    disk.crash();
                }
            }
        }
    }

    pub(crate) async fn end(self, ending: Ending, runtime: &Runtime, disk: &SimDisk) {
        let cut_first = runtime.random_u64().is_multiple_of(2);
        match ending {
            Ending::Close => {
                self.storage.close().await;
                self.scope.stopped().await;
                disk.kill();
            }
            Ending::Kill | Ending::SyncFailure => {
                if cut_first {
                    disk.kill();
                }
                self.scope.stopped().await;
                disk.kill();
                // The power is on again in the next life, also when it went in this one.
                if disk.is_off() {
                    disk.crash();
                }
            }
            Ending::Crash | Ending::PowerOff | Ending::SyncFailureThenCrash => {
                if cut_first {
                    disk.crash();
                    self.scope.stopped().await;
                } else {
                    self.scope.stopped().await;
                    disk.crash();
                }
            }
        }
        disk.fail_syncs(0);
    }
}

impl Ending {
    pub(crate) fn draw(runtime: &Runtime) -> Self {
        match runtime.random_u64() % 10 {
            0 => Self::Close,
            1 => Self::Kill,
            2..=4 => Self::Crash,
            5..=7 => Self::PowerOff,
            8 => Self::SyncFailure,
            _ => Self::SyncFailureThenCrash,
        }
    }

    /// Arms what will happen in the middle of the life.
    pub(crate) fn prepare(self, runtime: &Runtime, disk: &SimDisk) {
        match self {
            Self::PowerOff => disk.power_off_after(u32::try_from(runtime.random_u64() % 150).unwrap()),
            Self::SyncFailure | Self::SyncFailureThenCrash => disk.fail_syncs(20),
            Self::Close | Self::Kill | Self::Crash => {}
        }
    }
}
