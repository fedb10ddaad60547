//! The messages of the attribute for mistakes. `TRYBUILD=overwrite` writes the texts anew.

#[test]
fn mistakes_are_explained_where_they_are() {
    trybuild::TestCases::new().compile_fail("tests/compile_errors/*.rs");
}
