//! AlwaysAdmit and AlwaysDeny: nothing is refused, everything is. Off by default and deprecated, as upstream's.

use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_schema::Tree;

const DENIAL: &str = "admission control is denying all modifications";

pub(super) struct AlwaysAdmit;

#[async_trait]
impl Plugin for AlwaysAdmit {
    fn name(&self) -> &'static str {
        "AlwaysAdmit"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit, Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        Operation::ALL
    }

    fn handles(&self, _: &Request<'_>) -> bool {
        false
    }
}

pub(super) struct AlwaysDeny;

#[async_trait]
impl Plugin for AlwaysDeny {
    fn name(&self) -> &'static str {
        "AlwaysDeny"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit, Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        Operation::ALL
    }

    fn handles(&self, _: &Request<'_>) -> bool {
        true
    }

    async fn mutate(&self, _: &Request<'_>, _: &mut Tree, _: Option<&Tree>) -> Result<(), AdmissionError> {
        Err(AdmissionError::forbidden(DENIAL))
    }

    async fn validate(
        &self,
        _: &Request<'_>,
        _: Option<&Tree>,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        Err(AdmissionError::forbidden(DENIAL))
    }
}
