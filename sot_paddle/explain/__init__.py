"""Why a model decided as it did: evidence maps over images, impact of words, figures of both."""
