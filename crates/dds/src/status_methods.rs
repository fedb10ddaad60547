//! The methods of an endpoint that read and reset a status each.

/// Declares them: the name, the type of the status, the method of the statuses, and the name of the specification.
macro_rules! status_methods {
    ($endpoint:ident, $statuses:ident: $($name:ident: $status:ty, $of:ident, $text:literal;)*) => {
        impl<T> $endpoint<T> {$(
            #[doc = concat!("Reads and resets ", $text, " (DDS 2.2.4.1).")]
            pub fn $name(&self) -> $status {
                self.inner.core.with_statuses($statuses::$of)
            }
        )*}
    };
}

pub(crate) use status_methods;
