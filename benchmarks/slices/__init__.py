"""Operations in parts, beside the whole operations."""
