//! Answers of failure.

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::dto::{Problem, ProblemCode};
use crate::store::StoreError;

/// A request that cannot be answered as asked.
#[derive(Debug)]
pub struct Failure(Problem);

impl Failure {
    fn new(code: ProblemCode, message: impl Into<String>) -> Self {
        Self(Problem {
            code,
            message: message.into(),
            details: Vec::new(),
        })
    }

    /// What was asked for is not there.
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::NotFound, message)
    }

    /// The request makes no sense.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::BadRequest, message)
    }

    /// Several things answer to what was asked for.
    pub(super) fn ambiguous(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::Ambiguous, message)
    }

    /// The peer may not.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::Forbidden, message)
    }

    /// State or policy forbids it.
    pub(super) fn refused(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::Refused, message)
    }

    /// It can't be answered now.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::Unavailable, message)
    }

    /// A bug, or a broken database.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(ProblemCode::Internal, message)
    }

    /// The same failure with one more thing to know or to try.
    #[must_use]
    pub(super) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.details.push(detail.into());
        self
    }

    /// What is answered.
    pub fn into_problem(self) -> Problem {
        self.0
    }
}

impl From<StoreError> for Failure {
    /// The cause is for the log, where the operator of the daemon reads it.
    fn from(error: StoreError) -> Self {
        if let StoreError::Ambiguous { .. } = &error {
            return Self::ambiguous(error.to_string());
        }
        tracing::error!(error = &error as &dyn std::error::Error, "a request failed");
        if error.is_transient() {
            Self::unavailable("the database is busy; try again")
        } else {
            Self::new(
                ProblemCode::Internal,
                "the database could not be read or written",
            )
        }
    }
}

impl From<JsonRejection> for Failure {
    fn from(rejection: JsonRejection) -> Self {
        Self::bad_request(rejection.body_text())
    }
}

impl From<QueryRejection> for Failure {
    fn from(rejection: QueryRejection) -> Self {
        Self::bad_request(rejection.body_text())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self.0.code {
            ProblemCode::NotFound => StatusCode::NOT_FOUND,
            ProblemCode::BadRequest => StatusCode::BAD_REQUEST,
            ProblemCode::Ambiguous | ProblemCode::Refused => StatusCode::CONFLICT,
            ProblemCode::Forbidden => StatusCode::FORBIDDEN,
            ProblemCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ProblemCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(self.0)).into_response()
    }
}
