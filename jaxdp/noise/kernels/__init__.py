"""Long closed forms of single noises, as functions of arrays; a file is named after its noise."""
