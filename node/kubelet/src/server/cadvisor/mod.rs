//! Figures as upstream's kubelet has them of cAdvisor: `/metrics/cadvisor`, in cAdvisor's names and labels.
//!
//! A row is the machine (`id="/"`), a group of pods, a pod (no `container`), its sandbox (no `container`, but an image) or a
//! container. [`families`] and [`device_families`] say what there is of a row, [`machine`] what there is of the machine,
//! [`text`] writes it. The page is made once for all clients of a reading.

mod device_families;
mod families;
mod machine;
mod text;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use http::{Response, StatusCode};
use node_sys::machine::{Machine, Processors};

use super::metrics::TEXT_FORMAT;
use super::response::{Body, with_type};
use super::usage::Usage;
use super::usage::rows::Reading;
use crate::managers::ManagerContext;

/// Answers with what the machine, its pods and their containers use.
pub(super) async fn answer(context: &ManagerContext, usage: &Usage) -> Response<Body> {
    let reading = usage.rows(context).await.map_err(|message| {
        tracing::warn!(error = %message, "reading the figures of groups failed");
    });
    let machine = context.facts.machine.clone();
    let work = move || page(reading.as_deref().ok(), &machine);
    match context.runtime.blocking(work).await {
        Ok(page) => with_type(StatusCode::OK, TEXT_FORMAT, page),
        Err(ended) => super::response::text(StatusCode::INTERNAL_SERVER_ERROR, ended.to_string()),
    }
}

/// The page of a reading, which is made once; without one the machine's families alone.
fn page(reading: Option<&Reading>, machine: &Machine) -> Bytes {
    let make = || rendered(reading, machine, Processors::observe()).into();
    match reading {
        Some(reading) => reading.page.get_or_init(make).clone(),
        None => make(),
    }
}

fn rendered(reading: Option<&Reading>, machine: &Machine, processors: Processors) -> String {
    let mut out = String::new();
    if let Some(reading) = reading {
        let all = families::FAMILIES.iter().chain(&device_families::FAMILIES);
        text::write_families(&mut out, all, &reading.rows, reading.now);
    }
    machine::scrape_error(&mut out, "container", reading.is_none_or(|reading| reading.cut));
    machine::write(&mut out, machine, processors);
    out
}
