//! The Job of one time: the template, a name and an annotation that say for which time it is.

use super::plan::job_name;
use crate::views::CronJobView;
use crate::views::template::{OwnerReference, TemplateMeta, TemplateView};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use machinery_client::{ClientError, Object};
use machinery_semantics::cron_schedule::time_zone;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The time for which a Job was made, in the CronJob's zone.
const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// A Job to be created.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewJob {
    api_version: &'static str,
    kind: &'static str,
    pub(super) metadata: NewMeta,
    spec: Box<RawValue>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewMeta {
    pub(super) name: String,
    namespace: String,
    #[serde(flatten)]
    pub(super) template: TemplateMeta,
    owner_references: Vec<OwnerReference>,
}

/// The Job of a CronJob for this time.
pub(super) fn new_job(cron_job: &Object<CronJobView>, at: Timestamp) -> Result<NewJob, ClientError> {
    let Written { spec } = cron_job.decode()?;
    let mut template = spec.job_template.metadata.to_meta();
    template.finalizers.clear();
    let zone = cron_job.time_zone.as_deref().map_or(Ok(TimeZone::UTC), time_zone);
    let at_home = at.to_zoned(zone.unwrap_or(TimeZone::UTC));
    template
        .annotations
        .insert(SCHEDULED_AT.to_owned(), rfc3339(&at_home));
    Ok(NewJob {
        api_version: "batch/v1",
        kind: "Job",
        metadata: NewMeta {
            name: job_name(cron_job.name(), at),
            namespace: cron_job.namespace().to_owned(),
            template,
            owner_references: vec![OwnerReference::controller(
                "batch/v1",
                "CronJob",
                &cron_job.header,
            )],
        },
        spec: spec.job_template.spec,
    })
}

/// A time as Go writes it: `Z` where the zone is as far from UTC as UTC is.
fn rfc3339(at: &jiff::Zoned) -> String {
    let format = if at.offset().is_zero() {
        "%Y-%m-%dT%H:%M:%SZ"
    } else {
        "%Y-%m-%dT%H:%M:%S%:z"
    };
    at.strftime(format).to_string()
}

#[derive(Deserialize)]
struct Written {
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    job_template: JobTemplate,
}

#[derive(Deserialize)]
struct JobTemplate {
    #[serde(default)]
    metadata: TemplateView,
    spec: Box<RawValue>,
}
