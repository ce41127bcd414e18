//! `/localVolumes`: makes and removes folders of volumes for the control plane.
//!
//! The answer to a request that is understood is always 200, with what became of it: `path`, `gone`, `removing`, `noRoom` or
//! `error`.

use std::sync::Arc;

use http::Response;
use machinery_runtime::Runtime;
use serde_json::{Value, json};

use super::response::{self, Body};
use crate::local_volumes::{LocalVolumeError, LocalVolumes, Removal};

pub(super) async fn make(runtime: &Runtime, volumes: &Arc<LocalVolumes>, name: &str) -> Response<Body> {
    let (volumes, name) = (Arc::clone(volumes), name.to_owned());
    let made = runtime.blocking(move || volumes.make(&name)).await;
    response::json(&match made {
        Ok(Ok(path)) => json!({"path": path.display().to_string()}),
        Ok(Err(error)) => failure(&error),
        Err(ended) => json!({"error": ended.to_string()}),
    })
}

pub(super) fn remove(runtime: &Runtime, volumes: &Arc<LocalVolumes>, name: &str) -> Response<Body> {
    response::json(&match volumes.remove(runtime, name) {
        Ok(Removal::Gone) => json!({"gone": true}),
        Ok(Removal::Going) => json!({"removing": true}),
        Err(error) => failure(&error),
    })
}

fn failure(error: &LocalVolumeError) -> Value {
    match error {
        LocalVolumeError::NoRoom(_) => json!({"noRoom": error.to_string()}),
        other => json!({"error": other.to_string()}),
    }
}
