#include <tutti/tutti.hpp>

int main() { return 0; }
